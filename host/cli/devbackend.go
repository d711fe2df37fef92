package cli

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

var _ control.Backend = (*devRun)(nil)

// Describe is what other commands see of this run.
func (r *devRun) Describe() control.Description {
	app, info := r.current(), r.info()
	d := control.App{Name: app.Manifest.Name, Policy: info.Policy, Manifest: app.File, Exports: info.Exports}
	for _, s := range r.sb.Shares() {
		d.Shares = append(d.Shares, control.Share{HostDir: s.HostDir, Path: s.Path, Aliases: s.Aliases, ReadOnly: s.ReadOnly, Exclude: r.f.exclude})
	}
	return control.Description{
		ID: r.sb.ID(), PID: os.Getpid(), Machine: r.how, Image: r.image, Started: r.sb.Started(), Apps: []control.App{d},
	}
}

// Open connects to an app of the sandbox.
func (r *devRun) Open(ctx context.Context, app string) (link.Half, error) {
	stream, err := r.sb.Open(ctx, app)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// Denials asks the sandbox for the kernel's records.
func (r *devRun) Denials(ctx context.Context, app string, since time.Time) (control.Denials, error) {
	d, err := r.sb.Denials(ctx, app, since)
	return control.Denials{Kept: d.Kept, Complete: d.Complete, Records: d.Records, Calls: d.Calls}, err
}

// Names says what happened to names of the shares.
func (r *devRun) Names(since time.Time) control.Names {
	n := r.sb.Names(since)
	out := control.Names{Cut: n.Cut}
	for _, name := range n.List {
		c := control.Name{HostDir: name.HostDir, Place: name.Place, Op: name.Op, Refused: name.Refused, Why: name.Why}
		for _, s := range r.sb.Shares() {
			if s.HostDir == name.HostDir {
				c.Path = path.Join(s.Path, name.Place)
			}
		}
		out.List = append(out.List, c)
	}
	return out
}

// Why says what died, if anything did.
func (r *devRun) Why(ctx context.Context, app string) error { return r.sb.Why(ctx, app) }

// Logs follows the sandbox's logs.
func (r *devRun) Logs(ctx context.Context) <-chan link.LogRecord { return r.sb.Logs(ctx) }

// shares returns the folders of the flags, or the app's private one.
func (r *devRun) shares() ([]sandbox.Share, error) {
	if len(r.f.workspaces) == 0 {
		return r.privateShare()
	}
	var shares []sandbox.Share
	taken := map[string]string{}
	for _, flag := range r.f.workspaces {
		dir, ro := strings.CutSuffix(flag, ":ro")
		s := sandbox.Share{HostDir: dir, Path: "/workspace", ReadOnly: ro, Exclude: r.f.exclude}
		if len(r.f.workspaces) > 1 {
			s.Path = "/workspace/" + shareName(dir, r.w.Dir)
		}
		if other, ok := taken[s.Path]; ok {
			return nil, fail(ExitUsage, "rename one of the folders, or share the folder above them", "cannot share %s and %s: both would be %s", other, dir, s.Path)
		}
		taken[s.Path] = dir
		shares = append(shares, s)
	}
	return shares, nil
}

// privateShare is the app's own persistent folder, if it may use one at all.
func (r *devRun) privateShare() ([]sandbox.Share, error) {
	for _, p := range r.app.Policy.Paths {
		if policy.Below(p.Path, "/workspace") {
			dir, err := files.PrivateFolder("", r.app.Manifest.Name)
			if err != nil {
				return nil, err
			}
			return []sandbox.Share{{HostDir: dir, Path: "/workspace", Exclude: r.f.exclude}}, nil
		}
	}
	return nil, nil
}

// shareName is the last element of a folder's absolute path.
func shareName(dir, from string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(from, dir)
	}
	return filepath.Base(dir)
}

package monitor

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
)

var _ control.Backend = (*server)(nil)

// Describe is what other commands see of the sandbox.
func (s *server) Describe() control.Description {
	d := control.Description{
		ID: s.sb.ID(), PID: os.Getpid(), Name: s.start.Name, Log: s.start.Log,
		Machine: s.how, Image: s.start.Image, Started: s.sb.Started(),
	}
	for _, info := range s.sb.Apps() {
		s.mu.Lock()
		app := control.App{Name: info.Name, Policy: info.Policy, Manifest: s.apps[info.Name].Manifest, Exports: info.Exports, Ready: info.Ready}
		s.mu.Unlock()
		if info.Err != nil {
			app.Error = trim(info.Err.Error())
		}
		app.Shares = s.shares(info.Name)
		d.Apps = append(d.Apps, app)
	}
	return d
}

// shares are those that an app sees.
func (s *server) shares(app string) (out []control.Share) {
	for i, sh := range s.sb.Shares() {
		if sh.App != "" && sh.App != app {
			continue
		}
		out = append(out, control.Share{HostDir: sh.HostDir, Path: sh.Path, Aliases: sh.Aliases, ReadOnly: sh.ReadOnly, Exclude: s.start.Shares[i].Exclude})
	}
	return out
}

// Open connects a process of this host to an app of the sandbox.
func (s *server) Open(ctx context.Context, who control.Peer, app, export string) (link.Half, error) {
	stream, err := s.sb.Open(ctx, sandbox.Actor{Name: fmt.Sprintf("uid %d, pid %d", who.UID, who.PID), By: "SO_PEERCRED of control.sock"}, app, export)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// Denials asks the sandbox for the kernel's records.
func (s *server) Denials(ctx context.Context, app string, since time.Time) (control.Denials, error) {
	d, err := s.sb.Denials(ctx, app, since)
	return control.Denials{Kept: d.Kept, Complete: d.Complete, Records: d.Records, Calls: d.Calls}, err
}

// Names says what happened to names of the shares.
func (s *server) Names(since time.Time) control.Names {
	n := s.sb.Names(since)
	out := control.Names{Cut: n.Cut}
	for _, name := range n.List {
		c := control.Name{HostDir: name.HostDir, Place: name.Place, Op: name.Op, Refused: name.Refused, Why: name.Why}
		for _, sh := range s.sb.Shares() {
			if sh.HostDir == name.HostDir {
				c.Path = path.Join(sh.Path, name.Place)
			}
		}
		out.List = append(out.List, c)
	}
	return out
}

// Why says what died, if anything did.
func (s *server) Why(ctx context.Context, app string) error { return s.sb.Why(ctx, app) }

// Logs follows the sandbox's logs.
func (s *server) Logs(ctx context.Context) <-chan link.LogRecord { return s.sb.Logs(ctx) }

// Stop ends the sandbox if it is one that its parent has left.
func (s *server) Stop() error {
	if !s.isDetached() {
		return errAttached
	}
	s.cancel()
	return nil
}

package cli

import (
	"path/filepath"
	"strings"

	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/sandbox"
)

// shares returns the folders of the flags, or each app's private one.
func (l *launch) shares() ([]sandbox.Share, error) {
	if len(l.f.workspaces) == 0 {
		return l.privateShares()
	}
	var shares []sandbox.Share
	taken := map[string]string{}
	for _, flag := range l.f.workspaces {
		dir, ro := strings.CutSuffix(flag, ":ro")
		s := sandbox.Share{HostDir: absolute(l.w, dir), Path: "/workspace", ReadOnly: ro, Exclude: l.f.exclude}
		if dir == "" {
			return nil, fail(ExitUsage, "give a folder: --workspace DIR", "cannot share a folder: no name given")
		}
		if len(l.f.workspaces) > 1 {
			s.Path = "/workspace/" + filepath.Base(s.HostDir)
		}
		if other, ok := taken[s.Path]; ok {
			return nil, fail(ExitUsage, "rename one of the folders, or share the folder above them", "cannot share %s and %s: both would be %s", other, dir, s.Path)
		}
		taken[s.Path] = dir
		shares = append(shares, s)
	}
	return shares, nil
}

// privateShares are the apps' own persistent folders, of those that may use one
// at all. Each app sees only its own.
func (l *launch) privateShares() (shares []sandbox.Share, err error) {
	for _, a := range l.apps {
		if !belowWorkspace(a.app.Policy) {
			continue
		}
		name := a.app.Manifest.Name
		dir, err := files.PrivateFolder("", name)
		if err != nil {
			return nil, err
		}
		s := sandbox.Share{HostDir: dir, Path: "/workspace", Exclude: l.f.exclude}
		if len(l.apps) > 1 {
			s.App = name
		}
		shares = append(shares, s)
	}
	return shares, nil
}

//go:build linux

package files

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/userdir"
)

// CheckOwn reports why a folder must not be shared for writing: Berth's own
// configuration, state or data lies in it, or around it. Who writes there says
// what apps may do. An app's private folder is the one part that is shared.
func CheckOwn(dir string, more ...string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("cannot share %s: %w", dir, err)
	}
	dir = resolved(dir)
	for _, own := range append(ownFolders(), more...) {
		own = resolved(own)
		switch {
		case within(own, dir):
			return hint.Errorf("share a folder below it, or share it read-only: "+dir+":ro",
				"cannot share %s for writing: %s is in it, where berth keeps what apps may do", dir, own)
		case within(dir, own) && !privateWorkspace(own, dir):
			return hint.Errorf("share another folder, or share it read-only: "+dir+":ro",
				"cannot share %s for writing: it is in %s, where berth keeps what apps may do", dir, own)
		}
	}
	return nil
}

// ownFolders are where Berth keeps grants and lists, what it remembers, and
// apps' data.
func ownFolders() (list []string) {
	for _, kind := range userdir.Kinds() {
		if dir, err := kind.Dir(); err == nil {
			list = append(list, dir)
		}
	}
	return list
}

// resolved follows the symbolic links of as much of dir as exists.
func resolved(dir string) string {
	rest := ""
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == "/" {
			return dir
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

func within(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// privateWorkspace reports whether dir is, or lies in, a folder that
// PrivateFolder makes.
func privateWorkspace(own, dir string) bool {
	rel, err := filepath.Rel(own, dir)
	parts := strings.Split(rel, "/")
	return err == nil && len(parts) >= 3 && parts[0] == "apps" && appName.MatchString(parts[1]) && parts[2] == "workspace"
}

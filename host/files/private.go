//go:build linux

package files

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/userdir"
	"golang.org/x/sys/unix"
)

var appName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// PrivateFolder makes sure that the persistent folder of an app without
// --workspace exists and is only its user's, and returns its path. stateDir
// is the folder of Berth's data; "" is $XDG_DATA_HOME/berth, or
// ~/.local/share/berth. No symbolic link is followed from stateDir on, and no
// folder on the way may be changeable by another user.
func PrivateFolder(stateDir, app string) (string, error) {
	if !appName.MatchString(app) {
		return "", fmt.Errorf("cannot make a folder for app %q: want a-z, 0-9, dot, dash and underscore", app)
	}
	base, err := dataDir(stateDir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(base), 0o700); err != nil {
		return "", hint.Errorf("set XDG_DATA_HOME to a folder of your own, or share one: --workspace DIR", "cannot make the app's private folder: %w", err)
	}
	if err := safeAbove(filepath.Dir(base)); err != nil {
		return "", err
	}
	at, path := unix.AT_FDCWD, ""
	defer func() {
		if at != unix.AT_FDCWD {
			unix.Close(at)
		}
	}()
	for _, name := range []string{base, "apps", app, "workspace"} {
		path = filepath.Join(path, name)
		fd, err := stepInto(at, name, path)
		if err != nil {
			return "", err
		}
		if at != unix.AT_FDCWD {
			unix.Close(at)
		}
		at = fd
	}
	return path, nil
}

func dataDir(stateDir string) (string, error) {
	if stateDir == "" {
		return userdir.Data.Dir()
	}
	abs, err := filepath.Abs(stateDir)
	if err != nil || strings.ContainsRune(abs, 0) {
		return "", fmt.Errorf("cannot use %q as the folder for data", stateDir)
	}
	return abs, nil
}

// safeAbove makes sure that nobody else can put another folder in the place of
// ours: those above it belong to the user or to root, and where everybody may
// write, only owners may rename (sticky).
func safeAbove(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("cannot resolve the folder for data: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return fmt.Errorf("cannot read %s: %w", dir, err)
		}
		if me := os.Geteuid(); st.Uid != 0 && st.Uid != uint32(me) {
			return hint.Errorf("set XDG_DATA_HOME to a folder of your own",
				"cannot keep data below %s: it belongs to uid %d, and you are uid %d", dir, st.Uid, me)
		}
		if st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return hint.Errorf(fmt.Sprintf("chmod o-w %s", dir),
				"cannot keep data below %s: every user may write to it (mode %04o)", dir, st.Mode&0o7777)
		}
		if dir == "/" {
			return nil
		}
	}
}

// stepInto makes the folder name in at if it is missing, opens it without
// following a link, and checks whose it is.
func stepInto(at int, name, path string) (int, error) {
	if err := unix.Mkdirat(at, name, 0o700); err != nil && err != unix.EEXIST {
		return -1, fmt.Errorf("cannot make %s: %w", path, err)
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return -1, hint.Errorf("move it away; Berth makes the folder itself",
			"cannot use %s: it is a symbolic link or no folder", path)
	}
	if err != nil {
		return -1, fmt.Errorf("cannot open %s: %w", path, err)
	}
	if err := ownFolder(fd, path); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func ownFolder(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	if me := os.Geteuid(); st.Uid != uint32(me) {
		return hint.Errorf("move it away, or set XDG_DATA_HOME to a folder of your own",
			"cannot use %s: it belongs to uid %d, and you are uid %d", path, st.Uid, me)
	}
	if st.Mode&0o022 != 0 {
		return hint.Errorf(fmt.Sprintf("chmod go-w %s", path),
			"cannot use %s: other users may write to it (mode %04o)", path, st.Mode&0o7777)
	}
	return nil
}

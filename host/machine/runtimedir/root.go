// Package runtimedir owns the folder in which running sandboxes of one user keep
// what must not outlive them, and finds what sandboxes that died left behind.
package runtimedir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
)

// Root is the folder of all sandboxes of one user.
type Root struct{ path string }

// EnvDir names the variable that holds the folder of all sandboxes; without it
// the folder lies where the user's runtime files do.
const EnvDir = "BERTH_RUNTIME_DIR"

// Search says where Open looks. The zero value is this process's world.
type Search struct {
	Getenv func(string) string // nil: os.Getenv
	Path   string              // use this folder and no other
}

// Open finds or makes the folder. It is private to the user: anything else that
// stands in its place is refused.
func Open(s Search) (*Root, error) {
	if s.Path != "" {
		return open(s.Path)
	}
	getenv := s.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	if dir := getenv(EnvDir); dir != "" {
		if !filepath.IsAbs(dir) {
			return nil, hint.Errorf("give an absolute path", "cannot use %s: %q is not absolute", EnvDir, dir)
		}
		return open(dir)
	}
	uid := os.Geteuid()
	bases := []string{getenv("XDG_RUNTIME_DIR"), "/run/user/" + strconv.Itoa(uid)}
	if uid == 0 {
		bases = []string{"/run"}
	}
	for _, base := range bases {
		if filepath.IsAbs(base) && ownFolder(base, uid) == nil && unix.Access(base, unix.W_OK) == nil {
			return open(filepath.Join(base, "berth"))
		}
	}
	return open(filepath.Join(os.TempDir(), "berth-"+strconv.Itoa(uid)))
}

func open(path string) (*Root, error) {
	for _, dir := range []string{path, filepath.Join(path, sandboxes), filepath.Join(path, "ids")} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, hint.Errorf("set "+EnvDir+" to a folder of your own", "cannot make runtime folder: %w", err)
		}
		if err := private(dir, os.Geteuid()); err != nil {
			return nil, hint.Errorf("remove it, or set "+EnvDir+" to a folder of your own", "cannot use runtime folder %s: %w", dir, err)
		}
	}
	return &Root{path: path}, nil
}

// private refuses what another user could have put there or can look into.
func private(dir string, uid int) error {
	if err := ownFolder(dir, uid); err != nil {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("others may enter it (mode %04o, want 0700)", st.Mode().Perm())
	}
	return nil
}

func ownFolder(dir string, uid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("it is not a folder")
	}
	if int(st.Uid) != uid {
		return fmt.Errorf("it belongs to uid %d", st.Uid)
	}
	return nil
}

// Path is where the folder is.
func (r *Root) Path() string { return r.path }

const sandboxes = "sandboxes"

// Sandboxes is the folder that holds the folder of each sandbox.
func (r *Root) Sandboxes() string { return filepath.Join(r.path, sandboxes) }

// New makes the folder of one sandbox. It counts as alive until every copy of
// its lock is closed.
func (r *Root) New(name string) (*Dir, error) {
	release, err := r.exclusive()
	if err != nil {
		return nil, err
	}
	defer release()
	var tail [4]byte
	if _, err := rand.Read(tail[:]); err != nil {
		return nil, fmt.Errorf("cannot name a sandbox: %w", err)
	}
	id := name + "-" + hex.EncodeToString(tail[:])
	d := &Dir{ID: id, Path: filepath.Join(r.Sandboxes(), id)}
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make runtime folder of sandbox: %w", err)
	}
	if d.lock, err = lock(filepath.Join(d.Path, lockName), os.O_CREATE); err != nil {
		os.RemoveAll(d.Path)
		return nil, fmt.Errorf("cannot lock runtime folder of sandbox: %w", err)
	}
	return d, nil
}

// exclusive keeps New and Collect of all processes apart.
func (r *Root) exclusive() (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(r.path, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock runtime folder: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("cannot lock runtime folder: %w", err)
		}
	}
}

// Collect removes what sandboxes that are gone left behind, and returns their ids.
func (r *Root) Collect() (ids []string, err error) {
	release, err := r.exclusive()
	if err != nil {
		return nil, err
	}
	defer release()
	entries, err := os.ReadDir(r.Sandboxes())
	if err != nil {
		return nil, fmt.Errorf("cannot list sandboxes: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(r.Sandboxes(), e.Name())
		held, err := lock(filepath.Join(path, lockName), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue // alive
		}
		if err := Remove(path); err != nil {
			errs = append(errs, err)
		} else {
			ids = append(ids, e.Name())
		}
		if held != nil {
			held.Close()
		}
	}
	return ids, errors.Join(errs...)
}

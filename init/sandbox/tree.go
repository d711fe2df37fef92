package sandbox

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is the app's root while it is built: a tmpfs, and what gets mounted on
// it. Folders are made in file systems of its own only, never in a share.
type tree struct {
	root int
	own  map[uint64]bool // devices of the file systems that were made for the app
}

// newTree makes an empty root and puts it on /tmp of PID 1's tree, which is in
// the way of nothing: what comes from there has been opened before.
func newTree() (*tree, error) {
	root, err := newFilesystem("tmpfs", attrSafe|attrNoExec, option{"mode", "0755"}, option{"size", "1m"}, option{"nr_inodes", "4096"})
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, own: map[uint64]bool{}}
	if err := t.claim(root); err != nil {
		return nil, err
	}
	at, err := openAbs("/tmp")
	if err != nil {
		return nil, fmt.Errorf("cannot open /tmp to build on: %w", err)
	}
	defer unix.Close(at)
	return t, attach(root, at)
}

func (t *tree) claim(mount int) error {
	var st unix.Stat_t
	if err := unix.Fstat(mount, &st); err != nil {
		return fmt.Errorf("cannot stat new file system: %w", err)
	}
	t.own[st.Dev] = true
	return nil
}

// dir opens the folder at an absolute path of the tree and makes what is
// missing of it.
func (t *tree) dir(name string) (int, error) {
	at, err := unix.FcntlInt(uintptr(t.root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
		if part == "" {
			continue
		}
		next, err := t.child(at, part)
		unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("cannot make %s: %w", name, err)
		}
		at = next
	}
	return at, nil
}

func (t *tree) child(dir int, name string) (int, error) {
	fd, err := open(dir, name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := t.mayCreate(dir); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(dir, name, 0o755); err != nil {
		return -1, err
	}
	return open(dir, name)
}

func (t *tree) mayCreate(dir int) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if !t.own[st.Dev] {
		return errors.New("it is missing in the share around it")
	}
	return nil
}

// file opens the empty file at an absolute path of the tree and makes it if it
// is missing: what a file is mounted on.
func (t *tree) file(name string) (int, error) {
	dir, err := t.dir(path.Dir(name))
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	fd, err := open(dir, path.Base(name))
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := t.mayCreate(dir); err != nil {
		return -1, fmt.Errorf("cannot make %s: %w", name, err)
	}
	made, err := unix.Openat(dir, path.Base(name), unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return -1, fmt.Errorf("cannot make %s: %w", name, err)
	}
	unix.Close(made)
	return open(dir, path.Base(name))
}

// put attaches a mount at an absolute path of the tree.
func (t *tree) put(mount int, name string, isDir bool) error {
	place := t.file
	if isDir {
		place = t.dir
	}
	at, err := place(name)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := attach(mount, at); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// tmpfs makes a file system in memory for the app at an absolute path.
func (t *tree) tmpfs(name string, options ...option) (int, error) {
	mount, err := newFilesystem("tmpfs", attrSafe|attrNoExec, options...)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", name, err)
	}
	if err := t.claim(mount); err != nil {
		return -1, err
	}
	return mount, t.put(mount, name, true)
}

// symlink makes a link in the tree.
func (t *tree) symlink(to, name string) error {
	dir, err := t.dir(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Symlinkat(to, dir, path.Base(name)); err != nil {
		return fmt.Errorf("cannot make link %s: %w", name, err)
	}
	return nil
}

// seal makes the root itself read-only; mounts on it keep what they have.
func (t *tree) seal() error { return setAttrs(t.root, attrReadOnly, 0) }

// enter makes the tree the root of this process and lets go of the old one.
func (t *tree) enter() error {
	if err := unix.Fchdir(t.root); err != nil {
		return fmt.Errorf("cannot enter new root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot pivot to new root: %w", err)
	}
	// The old root now lies over the new one; the uppermost mount goes.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot detach old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("cannot enter /: %w", err)
	}
	return unix.Close(t.root)
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// writing is one file being written. What the kernel refuses is refused on the
// path that the caller named, before any helper file is made.
//
// A file that exists is replaced by renaming a finished helper file over it, so
// that readers see the old or the new content and a failure changes nothing. It
// is written in place where a rename would change more than its content: a link,
// a file with several names or another owner, or a folder that takes no new file.
type writing struct {
	ctx     context.Context
	path    string
	mode    *fs.FileMode // nil: keep, or the default for a new file
	append  bool
	newOnly bool
	fill    func(io.Writer) (int64, error)
}

func (w writing) run() (n int64, created bool, err error) {
	old, err := os.Lstat(w.path)
	if errors.Is(err, fs.ErrNotExist) || w.newOnly {
		n, err = w.create()
		if w.newOnly || !errors.Is(err, fs.ErrExist) {
			return n, err == nil, err
		}
		old, err = os.Lstat(w.path) // it has come into being since
	}
	switch {
	case err != nil:
		return 0, false, err
	case w.append || !replaceable(old):
		n, err = w.inPlace()
	default:
		n, err = w.replace(old.Mode().Perm())
	}
	return n, false, err
}

func replaceable(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && info.Mode().Perm() == info.Mode() && stat.Nlink == 1 && int(stat.Uid) == os.Geteuid()
}

// create writes a file that does not exist, and removes it if that fails.
func (w writing) create() (int64, error) {
	file, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := w.finish(file, w.mode)
	if err != nil {
		return 0, errors.Join(err, ignoreMissing(os.Remove(w.path)))
	}
	return n, nil
}

// replace writes a helper file and renames it.
func (w writing) replace(perm fs.FileMode) (int64, error) {
	// The file's own permissions count, though a rename would not ask them.
	file, err := os.OpenFile(w.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	file.Close()
	name := join(parent(w.path), ".berth-"+rand.Text()+".tmp")
	helper, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return w.inPlace()
	}
	if w.mode == nil {
		w.mode = &perm
	}
	n, err := w.finish(helper, w.mode)
	if err == nil {
		err = os.Rename(name, w.path)
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) { // the file is a mount of its own
			n, err = w.copyFrom(name)
		}
	}
	if err != nil {
		return 0, errors.Join(about(w.path, name, err), ignoreMissing(os.Remove(name)))
	}
	return n, nil
}

// copyFrom writes the finished helper file into the file and removes the helper.
func (w writing) copyFrom(name string) (int64, error) {
	helper, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer helper.Close()
	w.fill = func(dst io.Writer) (int64, error) { return io.Copy(dst, helper) }
	n, err := w.inPlace()
	if err != nil {
		return 0, err
	}
	return n, os.Remove(name)
}

// inPlace writes through whatever stands there: the kernel follows a link.
func (w writing) inPlace() (int64, error) {
	flags := os.O_WRONLY | os.O_CREATE | syscall.O_NONBLOCK
	if w.append {
		flags |= os.O_APPEND
	} else {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(w.path, flags, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := w.finish(file, w.mode)
	if err != nil && n > 0 {
		err = fmt.Errorf("%w (%d bytes of the new content are in the file)", err, n)
	}
	return n, err
}

// finish fills, sets the mode and closes.
func (w writing) finish(file *os.File, mode *fs.FileMode) (int64, error) {
	n, err := w.fill(file)
	if err == nil {
		err = w.ctx.Err()
	}
	if err == nil && mode != nil {
		err = file.Chmod(*mode)
	}
	return n, errors.Join(err, file.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

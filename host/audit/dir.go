package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/userdir"
)

// dir is the folder of a trail.
type dir struct {
	path string
	f    *os.File
}

// Folder returns where the trail of this user is.
func Folder() (string, error) {
	dir, err := userdir.State.Dir()
	return filepath.Join(dir, "audit"), err
}

// openDir opens the folder, which it makes if create is set. It is the user's
// alone, or it is not used.
func openDir(path string, create bool) (*dir, error) {
	if create {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, hint.Errorf("set XDG_STATE_HOME to a folder that can be written", "cannot keep an audit trail: %w", err)
		}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the audit trail: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	d := &dir{path: path, f: os.NewFile(uintptr(fd), path)}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		d.close()
		return nil, fmt.Errorf("cannot open the audit trail: %w", err)
	}
	if create && (st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0) {
		d.close()
		return nil, hint.Errorf("make it yours, mode 0700, or set XDG_STATE_HOME", "cannot keep the audit trail in %s: others may write to it (uid %d, mode %04o)", path, st.Uid, st.Mode&0o7777)
	}
	return d, nil
}

func (d *dir) close() { _ = d.f.Close() }

func (d *dir) file(name string) string { return filepath.Join(d.path, name) }

// open opens a file of the trail, never by way of a link.
func (d *dir) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(d.f.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.file(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), d.file(name))
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", d.file(name))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readFile reads a small file; a longer one is an error.
func (d *dir) readFile(name string, most int64) ([]byte, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("%s has more than %d bytes", d.file(name), most)
	}
	return raw, err
}

// replaceFile puts a whole file in place, or leaves what was there.
func (d *dir) replaceFile(name string, raw []byte, mode os.FileMode) error {
	tmp := name + ".new"
	_ = unix.Unlinkat(int(d.f.Fd()), tmp, 0) // of a writer that was killed
	f, err := d.open(tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = unix.Renameat(int(d.f.Fd()), tmp, int(d.f.Fd()), name)
	}
	if err != nil {
		_ = unix.Unlinkat(int(d.f.Fd()), tmp, 0)
		return fmt.Errorf("cannot write %s: %w", d.file(name), err)
	}
	return d.f.Sync()
}

const segmentExt = ".jsonl"

// segmentName is the file whose first record has this number. Twelve digits sort
// as numbers do for longer than any disk lasts.
func segmentName(first int64) string { return fmt.Sprintf("%012d%s", first, segmentExt) }

// segments are the numbers of the first records of all segments, in order.
func (d *dir) segments() ([]int64, error) {
	f, err := d.reopen()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list the audit trail: %w", err)
	}
	var list []int64
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, segmentExt)
		n, err := strconv.ParseInt(digits, 10, 64)
		if ok && err == nil && segmentName(n) == name {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// reopen opens the folder anew, with a position of its own.
func (d *dir) reopen() (*os.File, error) {
	fd, err := unix.Openat(int(d.f.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	return os.NewFile(uintptr(fd), d.path), nil
}

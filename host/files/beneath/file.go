//go:build linux

package beneath

import (
	"encoding/binary"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// File is a node opened for I/O.
type File struct {
	root *Root
	fd   int

	mu  sync.Mutex
	pos int64 // directory: the cookie at which the kernel's own position stands
}

// Close closes the file.
func (f *File) Close() { f.root.close(f.fd) }

// node returns the O_PATH node of an open file.
func (f *File) node() (*Node, error) {
	if err := f.root.reserve(); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(f.root.proc, strconv.Itoa(f.fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		f.root.unreserve()
		return nil, err
	}
	return f.root.node(fd)
}

// ReadAt reads up to len(p) bytes; 0 is the end of the file.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(f.fd, p, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// WriteAt writes p and returns how much of it the host took.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pwrite(f.fd, p, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Truncate sets the size of a file that is open for writing.
func (f *File) Truncate(size int64) error { return unix.Ftruncate(f.fd, size) }

// Sync brings the content to the disk.
func (f *File) Sync(dataOnly bool) error {
	if dataOnly {
		return unix.Fdatasync(f.fd)
	}
	return unix.Fsync(f.fd)
}

// Entry is one entry of a directory.
type Entry struct {
	Ino  uint64
	Next int64 // the cookie at which the following entry is read
	Type uint8 // DT_*
	Name string
}

// ReadDir reads entries from the cookie off with one system call into buf;
// none are left when it returns none.
func (f *File) ReadDir(off int64, buf []byte) ([]Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off != f.pos {
		if _, err := unix.Seek(f.fd, off, unix.SEEK_SET); err != nil {
			return nil, err
		}
	}
	n, err := unix.Getdents(f.fd, buf)
	if err != nil {
		f.pos = -1
		return nil, err
	}
	list := parseDirents(buf[:n])
	f.pos = off
	if len(list) > 0 {
		f.pos = list[len(list)-1].Next
	}
	return list, nil
}

// parseDirents takes apart linux_dirent64: ino[8] off[8] reclen[2] type[1] name[].
func parseDirents(b []byte) (list []Entry) {
	const name = 19
	for len(b) > name {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= name || size > len(b) {
			break
		}
		list = append(list, Entry{
			Ino:  binary.NativeEndian.Uint64(b),
			Next: int64(binary.NativeEndian.Uint64(b[8:])),
			Type: b[18],
			Name: unix.ByteSliceToString(b[name:size]),
		})
		b = b[size:]
	}
	return list
}

// Range is what a record lock covers: from Start for Len bytes, to the end for 0.
type Range struct{ Start, Len int64 }

// Lock sets (F_RDLCK, F_WRLCK) or clears (F_UNLCK) a lock of this open file
// against the programs of the host, without waiting.
func (f *File) Lock(kind int16, r Range) error {
	l := unix.Flock_t{Type: kind, Start: r.Start, Len: r.Len}
	return unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_SETLK, &l)
}

// TestLock returns the lock of a program of the host that would be in the way.
func (f *File) TestLock(kind int16, r Range) (held int16, at Range, err error) {
	l := unix.Flock_t{Type: kind, Start: r.Start, Len: r.Len}
	err = unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_GETLK, &l)
	return l.Type, Range{l.Start, l.Len}, err
}

// Flock is flock(2) with LOCK_NB.
func (f *File) Flock(how int) error { return unix.Flock(f.fd, how|unix.LOCK_NB) }

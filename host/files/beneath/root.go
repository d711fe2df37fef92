//go:build linux

// Package beneath owns access to one folder of the host and to nothing else.
//
// It is the only place of the file server that hands a name to the kernel.
// The folder is opened once; after that no path of the host is ever resolved:
// every call names one component relative to a descriptor that was reached
// from the folder by such calls, and follows no symbolic link, no magic link
// and no mount point. What a descriptor's object is can not change, so a check
// of its type holds for as long as the descriptor is open.
package beneath

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// resolve is how every name is looked up. RESOLVE_NO_XDEV: what is mounted
// below the folder (a /proc of a chroot, a network share) is not the folder.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// Root is one folder, open.
type Root struct {
	dir  *Node
	proc int // O_PATH of /proc/self/fd, to reopen a descriptor for I/O
	max  int64
	used atomic.Int64 // descriptors of nodes and files
}

// Open opens the folder. At most maxFDs descriptors are held at a time.
func Open(path string, maxFDs int) (*Root, error) {
	proc, err := openProc()
	if err != nil {
		return nil, err
	}
	r := &Root{proc: proc, max: int64(maxFDs)}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(proc)
		return nil, fmt.Errorf("cannot open folder %s: %w", path, err)
	}
	if err := probe(fd); err != nil {
		unix.Close(fd)
		unix.Close(proc)
		return nil, fmt.Errorf("cannot confine folder %s: %w", path, err)
	}
	r.used.Add(1)
	if r.dir, err = r.node(fd); err != nil {
		unix.Close(proc)
		return nil, fmt.Errorf("cannot read folder %s: %w", path, err)
	}
	return r, nil
}

func openProc() (int, error) {
	proc, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open /proc/self/fd: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(proc, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		unix.Close(proc)
		return -1, fmt.Errorf("cannot use /proc/self/fd: not a proc file system")
	}
	return proc, nil
}

// probe fails where the kernel has no openat2 (before 5.6) or a filter forbids it.
func probe(dir int) error {
	fd, err := unix.Openat2(dir, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return fmt.Errorf("openat2: %w", err)
	}
	return unix.Close(fd)
}

// Dir returns the folder itself, with a reference that the caller releases.
func (r *Root) Dir() *Node { return r.dir.Acquire() }

// IsRoot reports whether n is the folder itself.
func (r *Root) IsRoot(n *Node) bool { return n.Dev == r.dir.Dev && n.Ino == r.dir.Ino }

// Close closes the folder. All nodes and files must have been released.
func (r *Root) Close() {
	r.dir.Release()
	unix.Close(r.proc)
}

// InUse is the number of descriptors held, the folder's own included.
func (r *Root) InUse() int { return int(r.used.Load()) }

func (r *Root) reserve() error {
	if r.used.Add(1) > r.max {
		r.used.Add(-1)
		return unix.ENFILE
	}
	return nil
}

func (r *Root) close(fd int) {
	unix.Close(fd)
	r.used.Add(-1)
}

// Where returns the place of n below the folder right now, "" for the folder
// itself. An object that the host moved elsewhere is ESTALE: holding its
// descriptor does not make it part of the folder. An object that was unlinked
// is still where it was.
func (r *Root) Where(n *Node) (string, error) {
	if n == r.dir {
		return "", nil
	}
	root, err := r.path(r.dir.fd)
	if err != nil {
		return "", err
	}
	p, err := r.path(n.fd)
	if err != nil {
		return "", err
	}
	if p == root {
		return "", nil
	}
	rel, ok := strings.CutPrefix(p, root+"/")
	if !ok {
		return "", unix.ESTALE
	}
	return rel, nil
}

// path is the kernel's own name for an open object; it is compared, never resolved.
func (r *Root) path(fd int) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(r.proc, strconv.Itoa(fd), buf[:])
	if err != nil {
		return "", err
	}
	if n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// CheckName accepts one component of a path: what the kernel would look up in
// one directory and nowhere else.
func CheckName(name string) error {
	switch {
	case name == "":
		return unix.ENOENT
	case name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return unix.EINVAL
	case len(name) > unix.NAME_MAX:
		return unix.ENAMETOOLONG
	}
	return nil
}

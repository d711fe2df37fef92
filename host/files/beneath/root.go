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
	dir         *Node
	proc        int // O_PATH of /proc/self/fd, to reopen a descriptor for I/O
	own, shared *Budget
}

// Budget bounds the descriptors that nodes and files hold.
type Budget struct {
	max  int64
	used atomic.Int64
}

// NewBudget returns a budget of n descriptors.
func NewBudget(n int) *Budget { return &Budget{max: int64(n)} }

func (b *Budget) take() bool {
	if b.used.Add(1) > b.max {
		b.used.Add(-1)
		return false
	}
	return true
}

func (b *Budget) give() { b.used.Add(-1) }

// Open opens the folder. It holds at most maxFDs descriptors at a time, and
// with all others that share a budget no more than that.
func Open(path string, maxFDs int, shared *Budget) (*Root, error) {
	proc, err := openProc()
	if err != nil {
		return nil, err
	}
	r := &Root{proc: proc, own: NewBudget(maxFDs), shared: shared}
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
	if err := r.reserve(); err != nil {
		unix.Close(fd)
		unix.Close(proc)
		return nil, fmt.Errorf("cannot open folder %s: %w", path, err)
	}
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
func (r *Root) InUse() int { return int(r.own.used.Load()) }

// reserve counts a descriptor that is about to be opened.
func (r *Root) reserve() error {
	if !r.own.take() {
		return unix.ENFILE
	}
	if !r.shared.take() {
		r.own.give()
		return unix.ENFILE
	}
	return nil
}

// unreserve counts one that was not opened after all, or is closed.
func (r *Root) unreserve() {
	r.own.give()
	r.shared.give()
}

func (r *Root) close(fd int) {
	unix.Close(fd)
	r.unreserve()
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

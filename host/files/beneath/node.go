//go:build linux

package beneath

import (
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Node is one object below the root, held by an O_PATH descriptor: it can be
// looked at and named, not read. It is shared by counting references.
type Node struct {
	Type     uint32 // S_IFMT bits; never changes
	Dev, Ino uint64

	root *Root
	fd   int
	refs atomic.Int32
}

// node takes over fd, which is counted already, also when it fails.
func (r *Root) node(fd int) (*Node, error) {
	st, err := statx(fd)
	if err != nil {
		r.close(fd)
		return nil, err
	}
	n := &Node{Type: uint32(st.Mode) & unix.S_IFMT, Dev: devOf(st), Ino: st.Ino, root: r, fd: fd}
	n.refs.Store(1)
	return n, nil
}

// Acquire takes one more reference.
func (n *Node) Acquire() *Node {
	n.refs.Add(1)
	return n
}

// Release gives one reference back; the last closes the descriptor.
func (n *Node) Release() {
	if n.refs.Add(-1) == 0 {
		n.root.close(n.fd)
	}
}

// IsDir reports whether the node is a directory.
func (n *Node) IsDir() bool { return n.Type == unix.S_IFDIR }

// Lookup opens the object called name in the directory n.
func (n *Node) Lookup(name string) (*Node, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if !n.IsDir() {
		return nil, unix.ENOTDIR
	}
	if err := n.root.reserve(); err != nil {
		return nil, err
	}
	fd, err := openat2(n.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		n.root.unreserve()
		return nil, err
	}
	return n.root.node(fd)
}

// Stat returns the attributes, with the birth time where the host knows it.
func (n *Node) Stat() (*unix.Statx_t, error) { return statx(n.fd) }

// StatFS returns the numbers of the file system the node is on.
func (n *Node) StatFS() (st unix.Statfs_t, err error) {
	err = unix.Fstatfs(n.fd, &st)
	return st, err
}

// Readlink returns the text of a symbolic link.
func (n *Node) Readlink() (string, error) {
	if n.Type != unix.S_IFLNK {
		return "", unix.EINVAL
	}
	var buf [unix.PathMax]byte
	l, err := unix.Readlinkat(n.fd, "", buf[:])
	return string(buf[:max(l, 0)]), err
}

// Chmod sets the permission bits. It never adds setuid or setgid; a directory
// keeps the setgid bit it has when the mode asks for it.
func (n *Node) Chmod(mode uint32) error {
	if n.Type == unix.S_IFLNK {
		return unix.EOPNOTSUPP
	}
	perm := mode & 0o1777
	if n.IsDir() && mode&unix.S_ISGID != 0 {
		st, err := n.Stat()
		if err != nil {
			return err
		}
		perm |= uint32(st.Mode) & unix.S_ISGID
	}
	return unix.Fchmodat(n.root.proc, strconv.Itoa(n.fd), perm, 0)
}

// Utimes sets access and modification time; tv_nsec may be UTIME_NOW or UTIME_OMIT.
func (n *Node) Utimes(atime, mtime unix.Timespec) error {
	ts := []unix.Timespec{atime, mtime}
	if n.Type == unix.S_IFLNK {
		return unix.UtimesNanoAt(n.fd, "", ts, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	}
	return unix.UtimesNanoAt(n.root.proc, strconv.Itoa(n.fd), ts, 0)
}

// Open opens the node for I/O. Only regular files and directories can be: a
// device or a fifo of the host would do something when it is opened.
func (n *Node) Open(flags int) (*File, error) {
	switch n.Type {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		flags |= unix.O_DIRECTORY
	case unix.S_IFLNK:
		return nil, unix.ELOOP
	default:
		return nil, unix.EPERM
	}
	if flags&(unix.O_ACCMODE|unix.O_TRUNC) != unix.O_RDONLY {
		if err := n.dropSetID(); err != nil {
			return nil, err
		}
	}
	return n.reopen(flags)
}

// reopen opens what the descriptor stands for, by way of its magic link in
// /proc: no name is looked up.
func (n *Node) reopen(flags int) (*File, error) {
	if err := n.root.reserve(); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(n.root.proc, strconv.Itoa(n.fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		n.root.unreserve()
		return nil, err
	}
	return &File{root: n.root, fd: fd}, nil
}

// OpenLock opens a regular file only to hold locks, for writing if the host
// allows that, because a write lock needs it.
func (n *Node) OpenLock() (f *File, writable bool, err error) {
	if n.Type != unix.S_IFREG {
		return nil, false, unix.EBADF
	}
	if f, err = n.reopen(unix.O_RDWR); err == nil {
		return f, true, nil
	}
	f, err = n.reopen(unix.O_RDONLY)
	return f, false, err
}

// dropSetID does before a file is opened for writing what the kernel does at
// the first write, except for root: a setuid program of the host must not get
// new content and keep the bit.
func (n *Node) dropSetID() error {
	st, err := n.Stat()
	if err != nil || n.IsDir() || st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return err
	}
	return unix.Fchmodat(n.root.proc, strconv.Itoa(n.fd), uint32(st.Mode)&0o1777, 0)
}

func openat2(dir int, name string, flags uint64, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

func statx(fd int) (*unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_SYNC_AS_STAT|unix.AT_NO_AUTOMOUNT,
		unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil {
		return nil, err
	}
	return &st, nil
}

func devOf(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

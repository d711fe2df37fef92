//go:build linux

package beneath

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Create makes a regular file that did not exist and opens it.
func (n *Node) Create(name string, flags int, mode uint32) (*Node, *File, error) {
	if err := n.checkDir(name); err != nil {
		return nil, nil, err
	}
	if err := n.root.reserve(); err != nil {
		return nil, nil, err
	}
	fd, err := openat2(n.fd, name, uint64(flags)|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_NOCTTY, mode&0o777)
	if err != nil {
		n.root.unreserve()
		return nil, nil, err
	}
	f := &File{root: n.root, fd: fd}
	made, err := f.node()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return made, f, nil
}

// Mkdir makes a directory.
func (n *Node) Mkdir(name string, mode uint32) error {
	if err := n.checkDir(name); err != nil {
		return err
	}
	return unix.Mkdirat(n.fd, name, mode&0o1777)
}

// Socket makes the file of a unix socket. Nothing else can be made with
// mknod: a device is a way to the host's hardware, and a fifo stops every
// program of the host that opens it.
func (n *Node) Socket(name string, mode uint32) error {
	if err := n.checkDir(name); err != nil {
		return err
	}
	return unix.Mknodat(n.fd, name, unix.S_IFSOCK|mode&0o777, 0)
}

// Symlink makes a symbolic link. Its text is kept as it is and never followed.
func (n *Node) Symlink(target, name string) error {
	if err := n.checkDir(name); err != nil {
		return err
	}
	return unix.Symlinkat(target, n.fd, name)
}

// Link gives target one more name in the directory n.
func (n *Node) Link(target *Node, name string) error {
	if err := n.checkDir(name); err != nil {
		return err
	}
	if target.IsDir() {
		return unix.EPERM
	}
	// AT_SYMLINK_FOLLOW follows the magic link of the descriptor, and stops
	// at the object that it stands for, also when that is a symbolic link.
	return unix.Linkat(n.root.proc, strconv.Itoa(target.fd), n.fd, name, unix.AT_SYMLINK_FOLLOW)
}

// Rename moves name of the directory n to newName of the directory to.
func (n *Node) Rename(name string, to *Node, newName string) error {
	if err := n.checkDir(name); err != nil {
		return err
	}
	if err := to.checkDir(newName); err != nil {
		return err
	}
	return unix.Renameat(n.fd, name, to.fd, newName)
}

// Unlink removes a name, or with dir an empty directory.
func (n *Node) Unlink(name string, dir bool) error {
	if err := n.checkDir(name); err != nil {
		return err
	}
	flags := 0
	if dir {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(n.fd, name, flags)
}

func (n *Node) checkDir(name string) error {
	if !n.IsDir() {
		return unix.ENOTDIR
	}
	return CheckName(name)
}

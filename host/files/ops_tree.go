//go:build linux

package files

import (
	"strings"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// dirAndName reads fid[4] name[s], with which every request that changes a
// directory begins.
func (r *request) dirAndName() (id uint32, name string) { return r.in.U32(), r.in.String() }

// create: fid[4] name[s] flags[4] mode[4] gid[4]. The handle, a directory,
// becomes the new file, open.
func (r *request) create() error {
	id, name := r.dirAndName()
	f9, mode, _ := r.in.U32(), r.in.U32(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	flags, read, write, err := hostFlags(f9)
	if err != nil {
		return err
	}
	dir, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer dir.release()
	if file, _, _ := dir.opened(); file != nil {
		return unix.EBUSY
	}
	if _, err := r.newPlace("create", dir.node, name, false); err != nil {
		return err
	}
	node, file, err := createOrOpen(dir.node, name, flags, f9&wire.OpenExcl != 0, mode)
	if err != nil {
		return err
	}
	f := newFID(node)
	f.file, f.read, f.write = file, read, write
	if err := r.fids.swap(id, dir, f); err != nil {
		f.release()
		return err
	}
	dir.release() // the table's own reference
	r.out.QID(r.qid(node))
	r.out.U32(0)
	return nil
}

// createOrOpen makes a file or, unless it must be new, opens the one that
// came into being meanwhile. The host may take it away again, so a few turns.
func createOrOpen(dir *beneath.Node, name string, flags int, excl bool, mode uint32) (*beneath.Node, *beneath.File, error) {
	for range 8 {
		node, file, err := dir.Create(name, flags&^unix.O_TRUNC, mode)
		if err != unix.EEXIST || excl {
			return node, file, err
		}
		if node, err = dir.Lookup(name); err == nil {
			if file, err = node.Open(flags); err == nil {
				return node, file, nil
			}
			node.Release()
		}
		if err != unix.ENOENT {
			return nil, nil, err
		}
	}
	return nil, nil, unix.EAGAIN
}

// newEntry is what mkdir, mknod and symlink share: judge the place, make it,
// answer with the id of what is there now.
func (r *request) newEntry(op string, id uint32, name string, isDir bool, make func(dir *beneath.Node, rel string) error) error {
	dir, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer dir.release()
	rel, err := r.newPlace(op, dir.node, name, isDir)
	if err != nil {
		return err
	}
	if err := make(dir.node, rel); err != nil {
		return err
	}
	node, err := dir.node.Lookup(name)
	if err != nil {
		return err
	}
	defer node.Release()
	r.out.QID(r.qid(node))
	return nil
}

// mkdir: dfid[4] name[s] mode[4] gid[4].
func (r *request) mkdir() error {
	id, name := r.dirAndName()
	mode, _ := r.in.U32(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	return r.newEntry("mkdir", id, name, true, func(dir *beneath.Node, _ string) error {
		return dir.Mkdir(name, mode)
	})
}

// mknod: dfid[4] name[s] mode[4] major[4] minor[4] gid[4].
func (r *request) mknod() error {
	id, name := r.dirAndName()
	mode, _, _, _ := r.in.U32(), r.in.U32(), r.in.U32(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	return r.newEntry("mknod", id, name, false, func(dir *beneath.Node, _ string) error {
		switch mode & unix.S_IFMT {
		case unix.S_IFSOCK:
			return dir.Socket(name, mode)
		case unix.S_IFREG, 0:
			node, file, err := dir.Create(name, unix.O_WRONLY, mode)
			if err != nil {
				return err
			}
			file.Close()
			node.Release()
			return nil
		default:
			return unix.EPERM
		}
	})
}

// symlink: dfid[4] name[s] target[s] gid[4]. The target is any text: only the
// guest's kernel ever follows it, in the guest's own tree. But a link in the
// place of a folder that hosts look into would lead them elsewhere.
func (r *request) symlink() error {
	id, name := r.dirAndName()
	target, _ := r.in.String(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	switch {
	case target == "":
		return unix.ENOENT
	case strings.ContainsRune(target, 0):
		return unix.EINVAL
	case len(target) >= unix.PathMax:
		return unix.ENAMETOOLONG
	}
	return r.newEntry("symlink", id, name, false, func(dir *beneath.Node, rel string) error {
		if r.names.holds(rel) {
			return r.refuse("symlink", rel)
		}
		return dir.Symlink(target, name)
	})
}

// link: dfid[4] fid[4] name[s].
func (r *request) link() error {
	id, target, name := r.in.U32(), r.in.U32(), r.in.String()
	if err := r.args(); err != nil {
		return err
	}
	dir, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer dir.release()
	f, err := r.fids.get(target)
	if err != nil {
		return err
	}
	defer f.release()
	if _, err := r.newPlace("link", dir.node, name, false); err != nil {
		return err
	}
	// A second name for a protected file would be a way to write it.
	if err := r.changeable("link", f.node); err != nil {
		return err
	}
	return dir.node.Link(f.node, name)
}

// rename: olddirfid[4] oldname[s] newdirfid[4] newname[s].
func (r *request) rename() error {
	oldID, oldName := r.dirAndName()
	newID, newName := r.dirAndName()
	if err := r.args(); err != nil {
		return err
	}
	from, err := r.fids.get(oldID)
	if err != nil {
		return err
	}
	defer from.release()
	to, err := r.fids.get(newID)
	if err != nil {
		return err
	}
	defer to.release()
	old, err := r.place(from.node, oldName)
	if err != nil {
		return err
	}
	if err := r.mayLeave(from.node, old, oldName); err != nil {
		return err
	}
	rel, err := r.newPlace("rename", to.node, newName, true)
	if err != nil {
		return err
	}
	if !r.names.mayMove(old, rel) {
		return r.refuse("rename", rel)
	}
	return from.node.Rename(oldName, to.node, newName)
}

// mayLeave reports whether the guest may move away what is called name. A .git
// that is no directory points to a repository, relative to where it is.
func (r *request) mayLeave(dir *beneath.Node, rel, name string) error {
	isDir := true
	if fold(name) == gitFile {
		n, err := dir.Lookup(name)
		if err != nil {
			return err
		}
		isDir = n.IsDir()
		n.Release()
	}
	if r.names.protected(rel, isDir) {
		return r.refuse("rename", rel)
	}
	return nil
}

// unlink: dirfd[4] name[s] flags[4].
func (r *request) unlink() error {
	id, name := r.dirAndName()
	flags := r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	if flags&^wire.AtRemoveDir != 0 {
		return unix.EINVAL
	}
	dir, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer dir.release()
	rel, err := r.place(dir.node, name)
	if err != nil {
		return err
	}
	isDir := flags&wire.AtRemoveDir != 0
	if r.names.protected(rel, isDir) {
		return r.refuse("unlink", rel)
	}
	return dir.node.Unlink(name, isDir)
}

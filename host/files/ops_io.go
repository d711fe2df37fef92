//go:build linux

package files

import (
	"math"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// hostFlags are the open flags that are passed on. O_APPEND is not: the guest
// sends an offset with every write, and its page cache writes pages in place
// through any handle that is open for writing.
func hostFlags(f uint32) (flags int, read, write bool, err error) {
	switch f & wire.OpenAccess {
	case wire.OpenRead:
		flags, read = unix.O_RDONLY, true
	case wire.OpenWrite:
		flags, write = unix.O_WRONLY, true
	case wire.OpenBoth:
		flags, read, write = unix.O_RDWR, true, true
	default:
		return 0, false, false, unix.EINVAL
	}
	if f&wire.OpenTrunc != 0 {
		flags |= unix.O_TRUNC
	}
	if f&wire.OpenSync != 0 {
		flags |= unix.O_SYNC
	} else if f&wire.OpenDsync != 0 {
		flags |= unix.O_DSYNC
	}
	return flags, read, write, nil
}

// open: fid[4] flags[4].
func (r *request) open() error {
	id, f9 := r.in.U32(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	flags, read, write, err := hostFlags(f9)
	if err != nil {
		return err
	}
	f, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer f.release()
	if f9&wire.OpenDir != 0 && !f.node.IsDir() {
		return unix.ENOTDIR
	}
	if err := r.mayOpen(f.node, write || flags&unix.O_TRUNC != 0); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		return unix.EBUSY
	}
	if f.file, err = f.node.Open(flags); err != nil {
		return err
	}
	f.read, f.write = read, write
	r.out.QID(r.qid(f.node))
	r.out.U32(0) // as large as the message size allows
	return nil
}

func (r *request) mayOpen(n *beneath.Node, change bool) error {
	if !change {
		rel, err := r.root.Where(n)
		if err == nil && r.names.hidden(rel) {
			return unix.ENOENT
		}
		return err
	}
	if r.opt.ReadOnly {
		return unix.EROFS
	}
	if n.IsDir() {
		return unix.EISDIR
	}
	return r.changeable("write", n)
}

// file returns what is open under an id, with the handle that the caller
// releases. Directories are read with readdir only.
func (r *request) file(id uint32, write bool) (*fid, *beneath.File, error) {
	f, err := r.fids.get(id)
	if err != nil {
		return nil, nil, err
	}
	file, canRead, canWrite := f.opened()
	switch {
	case file == nil, write && !canWrite, !write && !canRead:
		err = unix.EBADF
	case f.node.IsDir():
		err = unix.EISDIR
	}
	if err != nil {
		f.release()
		return nil, nil, err
	}
	return f, file, nil
}

// read: fid[4] offset[8] count[4].
func (r *request) read() error {
	id, off, count := r.in.U32(), r.in.U64(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	if off > math.MaxInt64 {
		return unix.EINVAL
	}
	f, file, err := r.file(id, false)
	if err != nil {
		return err
	}
	defer f.release()
	n := r.payload(count)
	return r.out.Payload(n, func(p []byte) (int, error) { return file.ReadAt(p, int64(off)) })
}

// payload is how many bytes of a reply's content may be filled in, with the
// room for them.
func (r *request) payload(count uint32) int {
	n := min(int64(count), int64(r.msize.Load())-wire.IOHeader)
	r.w.room(int(n) + wire.IOHeader)
	r.out.Reset(r.w.typ+1, r.w.tag)
	return int(n)
}

// write: fid[4] offset[8] count[4] data[count].
func (r *request) write() error {
	id, off := r.in.U32(), r.in.U64()
	data := r.in.Data()
	if err := r.args(); err != nil {
		return err
	}
	if off > math.MaxInt64 {
		return unix.EINVAL
	}
	f, file, err := r.file(id, true)
	if err != nil {
		return err
	}
	defer f.release()
	// Asked again at every write: a file that was free when it was opened may
	// have become .git/config since, as git on the host renames its lock file.
	if err := r.changeable("write", f.node); err != nil {
		return err
	}
	n, err := file.WriteAt(data, int64(off))
	if err != nil {
		return err
	}
	r.out.U32(uint32(n))
	return nil
}

// fsync: fid[4] datasync[4]; the last field is younger than the protocol.
func (r *request) fsync() error {
	id, dataOnly := r.in.U32(), uint32(0)
	if r.in.Left() > 0 {
		dataOnly = r.in.U32()
	}
	f, err := r.handle(id)
	if err != nil {
		return err
	}
	defer f.release()
	file, _, _ := f.opened()
	if file == nil {
		return unix.EBADF
	}
	return file.Sync(dataOnly != 0)
}

//go:build linux

package files

import (
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// lock: fid[4] type[1] flags[4] start[8] length[8] proc_id[4] client_id[s].
// It never waits: a guest that wants to is told "blocked" and asks again
// (mount option locktimeout).
func (r *request) lock() error {
	id, typ, _ := r.in.U32(), r.in.U8(), r.in.U32()
	start, length, pid, client := r.in.U64(), r.in.U64(), r.in.U32(), r.in.String()
	if err := r.args(); err != nil {
		return err
	}
	f, err := r.lockable(id)
	if err != nil {
		return err
	}
	defer f.release()
	l, ok := newLock(f, typ, start, length, client, pid)
	if !ok {
		return unix.EINVAL
	}
	blocked, err := r.locks.set(f.node, l, typ == wire.LockUnlock)
	switch {
	case err != nil:
		r.out.U8(wire.LockError)
	case blocked:
		r.out.U8(wire.LockBlocked)
	default:
		r.out.U8(wire.LockSuccess)
	}
	return nil
}

// getlock: fid[4] type[1] start[8] length[8] proc_id[4] client_id[s]; the
// answer has the same fields without the fid. The Linux client asks with the
// type "unlock" and means a write lock.
func (r *request) getlock() error {
	id, typ := r.in.U32(), r.in.U8()
	start, length, pid, client := r.in.U64(), r.in.U64(), r.in.U32(), r.in.String()
	if err := r.args(); err != nil {
		return err
	}
	f, err := r.lockable(id)
	if err != nil {
		return err
	}
	defer f.release()
	if typ == wire.LockUnlock {
		typ = wire.LockWrite
	}
	want, ok := newLock(f, typ, start, length, client, pid)
	if !ok {
		return unix.EINVAL
	}
	l, taken, err := r.locks.test(f.node, want)
	if err != nil {
		return err
	}
	typ = wire.LockUnlock
	if taken {
		typ = wire.LockRead
		if l.write {
			typ = wire.LockWrite
		}
		at := span(l.start, l.end)
		start, length, pid, client = uint64(at.Start), uint64(at.Len), l.owner.pid, l.owner.client
	}
	r.out.U8(typ)
	r.out.U64(start)
	r.out.U64(length)
	r.out.U32(pid)
	r.out.String(client)
	return nil
}

// lockable returns an open regular file.
func (r *request) lockable(id uint32) (*fid, error) {
	f, err := r.fids.get(id)
	if err != nil {
		return nil, err
	}
	if file, _, _ := f.opened(); file == nil || f.node.Type != unix.S_IFREG {
		f.release()
		return nil, unix.EBADF
	}
	return f, nil
}

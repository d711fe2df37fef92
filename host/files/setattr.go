//go:build linux

package files

import (
	"math"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// change is the body of Tsetattr: fid[4] valid[4] mode[4] uid[4] gid[4] size[8]
// atime[8+8] mtime[8+8].
type change struct {
	valid, mode, uid, gid uint32
	size                  uint64
	atime, mtime          [2]uint64
}

func (r *request) readChange() (id uint32, c change, err error) {
	id, c.valid, c.mode, c.uid, c.gid = r.in.U32(), r.in.U32(), r.in.U32(), r.in.U32(), r.in.U32()
	c.size = r.in.U64()
	c.atime = [2]uint64{r.in.U64(), r.in.U64()}
	c.mtime = [2]uint64{r.in.U64(), r.in.U64()}
	return id, c, r.args()
}

func (r *request) setattr() error {
	id, c, err := r.readChange()
	if err != nil {
		return err
	}
	f, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer f.release()
	if err := r.changeable("setattr", f.node); err != nil {
		return err
	}
	if err := r.checkIDs(f.node, c); err != nil {
		return err
	}
	if c.valid&wire.SetSize != 0 {
		if err := truncate(f, c.size); err != nil {
			return err
		}
	}
	if c.valid&wire.SetMode != 0 {
		if err := f.node.Chmod(c.mode); err != nil {
			return err
		}
	}
	return setTimes(f.node, c)
}

// checkIDs lets a chown through that changes nothing. Every file belongs to
// the folder's owner, and the guest can not make it belong to anybody else.
func (r *request) checkIDs(n *beneath.Node, c change) error {
	if c.valid&(wire.SetUID|wire.SetGID) == 0 {
		return nil
	}
	st, err := n.Stat()
	if err != nil {
		return err
	}
	if c.valid&wire.SetUID != 0 && c.uid != wire.NoID && c.uid != r.user(st.Uid) {
		return unix.EPERM
	}
	if c.valid&wire.SetGID != 0 && c.gid != wire.NoID && c.gid != r.group(st.Gid) {
		return unix.EPERM
	}
	return nil
}

func truncate(f *fid, size uint64) error {
	if size > math.MaxInt64 {
		return unix.EFBIG
	}
	if file, _, write := f.opened(); file != nil && write {
		return file.Truncate(int64(size))
	}
	if f.node.IsDir() {
		return unix.EISDIR
	}
	file, err := f.node.Open(unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Truncate(int64(size))
}

func setTimes(n *beneath.Node, c change) error {
	if c.valid&(wire.SetAtime|wire.SetMtime) == 0 {
		return nil
	}
	atime, err := timeOf(c.valid&wire.SetAtime != 0, c.valid&wire.SetAtimeVal != 0, c.atime)
	if err != nil {
		return err
	}
	mtime, err := timeOf(c.valid&wire.SetMtime != 0, c.valid&wire.SetMtimeVal != 0, c.mtime)
	if err != nil {
		return err
	}
	return n.Utimes(atime, mtime)
}

// timeOf is a time for utimensat: given, now, or left alone.
func timeOf(set, given bool, v [2]uint64) (unix.Timespec, error) {
	switch {
	case !set:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}, nil
	case !given:
		return unix.Timespec{Nsec: unix.UTIME_NOW}, nil
	case v[1] >= 1e9:
		return unix.Timespec{}, unix.EINVAL
	}
	return unix.Timespec{Sec: int64(v[0]), Nsec: int64(v[1])}, nil
}

//go:build linux

package files

import (
	"hash/fnv"
	"sync"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// inodeIDs makes one number out of device and inode. Files of the folder's own
// device keep their inode number; a folder can hold more than one device
// (btrfs subvolumes) although it holds only one mount.
type inodeIDs struct {
	root uint64

	mu    sync.Mutex
	other map[uint64]uint64 // device to salt
}

func (t *inodeIDs) number(dev, ino uint64) uint64 {
	if dev == t.root {
		return ino
	}
	t.mu.Lock()
	salt, ok := t.other[dev]
	if !ok {
		h := fnv.New64a()
		h.Write([]byte{byte(dev), byte(dev >> 8), byte(dev >> 16), byte(dev >> 24), byte(dev >> 32), byte(dev >> 40)})
		salt = h.Sum64() | 1<<63
		t.other[dev] = salt
	}
	t.mu.Unlock()
	// An odd multiplier is a bijection: no two inodes of a device collide.
	return (ino*0x9e3779b97f4a7c15 ^ salt) | 1<<63
}

// user and group are the ids under which an owner of the host appears.
func (s *session) user(uid uint32) uint32 {
	if uid == s.owner.uid {
		return s.opt.UID
	}
	return nobody
}

func (s *session) group(gid uint32) uint32 {
	if gid == s.owner.gid || gid == s.gid {
		return s.opt.GID
	}
	return nobody
}

const (
	ioBlock   = 64 << 10   // st_blksize: what programs take for one read or write
	nineMagic = 0x01021997 // V9FS_MAGIC
)

// getattr: fid[4] request_mask[8].
func (r *request) getattr() error {
	id, _ := r.in.U32(), r.in.U64()
	f, err := r.handle(id)
	if err != nil {
		return err
	}
	defer f.release()
	st, err := f.node.Stat()
	if err != nil {
		return err
	}
	r.writeAttr(f.node, st)
	return nil
}

// writeAttr: valid[8] qid[13] mode[4] uid[4] gid[4] nlink[8] rdev[8] size[8]
// blksize[8] blocks[8] atime[16] mtime[16] ctime[16] btime[16] gen[8] data_version[8].
func (r *request) writeAttr(n *beneath.Node, st *unix.Statx_t) {
	valid := uint64(wire.AttrBasic | wire.AttrGen)
	if st.Mask&unix.STATX_BTIME != 0 {
		valid |= wire.AttrBtime
	}
	r.out.U64(valid)
	r.out.QID(r.qid(n))
	r.out.U32(shownMode(st))
	r.out.U32(r.user(st.Uid))
	r.out.U32(r.group(st.Gid))
	r.out.U64(uint64(st.Nlink))
	r.out.U64(0) // devices of the host have no numbers in the guest
	r.out.U64(st.Size)
	r.out.U64(ioBlock)
	r.out.U64(st.Blocks)
	for _, t := range []unix.StatxTimestamp{st.Atime, st.Mtime, st.Ctime, st.Btime} {
		r.out.U64(uint64(t.Sec))
		r.out.U64(uint64(t.Nsec))
	}
	// An inode number that is used again is another file: its birth tells.
	r.out.U64(uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec))
	r.out.U64(0)
}

// shownMode hides setuid and setgid, which mean nothing in the guest, but for
// the setgid bit of a directory: "new entries get my group".
func shownMode(st *unix.Statx_t) uint32 {
	mode := uint32(st.Mode) &^ unix.S_ISUID
	if mode&unix.S_IFMT != unix.S_IFDIR {
		mode &^= unix.S_ISGID
	}
	return mode
}

// statfs: fid[4].
func (r *request) statfs() error {
	id := r.in.U32()
	f, err := r.handle(id)
	if err != nil {
		return err
	}
	defer f.release()
	st, err := f.node.StatFS()
	if err != nil {
		return err
	}
	r.out.U32(nineMagic)
	r.out.U32(uint32(st.Bsize))
	for _, v := range []uint64{st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree, 0} {
		r.out.U64(v)
	}
	r.out.U32(unix.NAME_MAX)
	return nil
}

// readlink: fid[4].
func (r *request) readlink() error {
	id := r.in.U32()
	f, err := r.handle(id)
	if err != nil {
		return err
	}
	defer f.release()
	target, err := f.node.Readlink()
	if err != nil {
		return err
	}
	r.out.String(target)
	return nil
}

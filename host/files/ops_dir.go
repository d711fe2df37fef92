//go:build linux

package files

import (
	"math"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

const (
	minReaddir = 512      // room for one entry of the longest name
	maxReaddir = 64 << 10 // one answer; a guest asks again for more
)

// readdir: fid[4] offset[8] count[4].
func (r *request) readdir() error {
	id, off, count := r.in.U32(), r.in.U64(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	if off > math.MaxInt64 || count < minReaddir {
		return unix.EINVAL
	}
	f, err := r.fids.get(id)
	if err != nil {
		return err
	}
	defer f.release()
	file, _, _ := f.opened()
	if file == nil {
		return unix.EBADF
	}
	if !f.node.IsDir() {
		return unix.ENOTDIR
	}
	n := r.payload(min(count, maxReaddir))
	return r.out.Payload(n, func(p []byte) (int, error) { return r.fillDir(p, f.node, file, int64(off)) })
}

// fillDir writes the visible entries from the cookie off into p. None are left
// when it writes none.
func (r *request) fillDir(p []byte, dir *beneath.Node, file *beneath.File, off int64) (int, error) {
	scratch := large.Get().(*[wire.MaxSize]byte)
	defer large.Put(scratch)
	// A host's entry of 20+len bytes, rounded up to 8, becomes one of 24+len
	// here: at most 7/6 of it. So what is read always fits.
	buf := scratch[:len(p)/7*6]
	for {
		list, err := file.ReadDir(off, buf)
		if err != nil || len(list) == 0 {
			return 0, err
		}
		b := p[:0]
		for _, e := range list {
			if !r.names.hiddenName(fold(e.Name)) {
				b = wire.AppendDirent(b, r.direntQID(dir, e), uint64(e.Next), e.Type, e.Name)
			}
		}
		if len(b) > 0 {
			return len(b), nil
		}
		off = list[len(list)-1].Next
	}
}

// direntQID is the id of an entry. The number of what is above the folder is
// nobody's business in the guest.
func (r *request) direntQID(dir *beneath.Node, e beneath.Entry) wire.QID {
	ino := e.Ino
	if e.Name == ".." && r.root.IsRoot(dir) {
		ino = dir.Ino
	}
	q := wire.QID{Path: r.ids.number(dir.Dev, ino)}
	switch e.Type {
	case unix.DT_DIR:
		q.Type = wire.QTDir
	case unix.DT_LNK:
		q.Type = wire.QTSymlink
	}
	return q
}

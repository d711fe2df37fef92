//go:build linux

package files

import (
	"math"
	"sync"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// maxLocks bounds the locks that a session holds.
const maxLocks = 4096

// fileKey is a file on the host, whatever it is called.
type fileKey struct{ dev, ino uint64 }

// lockOwner is a process of the guest.
type lockOwner struct {
	client string
	pid    uint32
}

// lock is one range that is held.
type lock struct {
	owner      lockOwner
	fid        *fid // through which it was set last; its end ends the lock
	write      bool
	start, end int64 // end is the first byte not covered; math.MaxInt64 is the end of the file
}

// overlaps reports whether two locks share a byte.
func (l lock) overlaps(o lock) bool { return l.start < o.end && o.start < l.end }

// lockTable holds the locks of a session. Within the guest its own kernel
// decides first; here they are also set on the host, so that programs of the
// host and of other sandboxes see them.
type lockTable struct {
	guestOnly bool // a guest that may not write may not stop the host's writers either

	mu    sync.Mutex
	files map[fileKey]*fileLocks
	count int
}

// fileLocks are the locks of one file, and the descriptor that holds them on
// the host: one for all, because closing it drops them.
type fileLocks struct {
	held     []lock
	file     *beneath.File // nil: the host does not let us open it; then they hold in the guest only
	writable bool
	flock    int // LOCK_SH, LOCK_EX, LOCK_UN, or 0 before the first
}

// set takes, changes or gives back what want covers. blocked: somebody has it.
func (t *lockTable) set(n *beneath.Node, want lock, unlock bool) (blocked bool, err error) {
	key := fileKey{n.Dev, n.Ino}
	t.mu.Lock()
	defer t.mu.Unlock()
	if want.fid.unlocked {
		return false, unix.EBADF
	}
	fl := t.files[key]
	if fl == nil {
		if unlock {
			return false, nil
		}
		fl = t.open(n)
		t.files[key] = fl
	}
	defer t.prune(key, fl)
	if !unlock {
		if t.count >= maxLocks {
			return false, unix.ENOLCK
		}
		if _, taken := fl.conflict(want); taken {
			return true, nil
		}
		if blocked, err := fl.takeOnHost(want); blocked || err != nil {
			return blocked, err
		}
	}
	t.count -= len(fl.held)
	fl.replace(want, unlock)
	t.count += len(fl.held)
	fl.settle(want)
	return false, nil
}

// forget drops the locks that were set through f, and lets no more be set: a
// request that came before the clunk may still be on its way.
func (t *lockTable) forget(f *fid) {
	key := fileKey{f.node.Dev, f.node.Ino}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.unlocked = true
	fl := t.files[key]
	if fl == nil {
		return
	}
	var kept, gone []lock
	for _, l := range fl.held {
		if l.fid == f {
			gone = append(gone, l)
		} else {
			kept = append(kept, l)
		}
	}
	t.count -= len(gone)
	fl.held = kept
	for _, l := range gone {
		fl.settle(l)
	}
	t.prune(key, fl)
}

// test returns the lock that would stop want, if there is one.
func (t *lockTable) test(n *beneath.Node, want lock) (lock, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fl := t.files[fileKey{n.Dev, n.Ino}]
	if fl == nil {
		fl = t.open(n)
		defer fl.close()
	}
	if l, taken := fl.conflict(want); taken {
		return l, true, nil
	}
	return fl.testOnHost(want)
}

// prune closes the host's descriptor when nothing is held any more.
func (t *lockTable) prune(key fileKey, fl *fileLocks) {
	if len(fl.held) == 0 {
		fl.close()
		delete(t.files, key)
	}
}

func (t *lockTable) open(n *beneath.Node) *fileLocks {
	if t.guestOnly {
		return &fileLocks{}
	}
	f, writable, err := n.OpenLock()
	if err != nil {
		return &fileLocks{}
	}
	return &fileLocks{file: f, writable: writable}
}

func (fl *fileLocks) close() {
	if fl.file != nil {
		fl.file.Close()
	}
}

// conflict finds a lock of another process of the guest in the way.
func (fl *fileLocks) conflict(want lock) (lock, bool) {
	for _, l := range fl.held {
		if l.owner != want.owner && l.overlaps(want) && (l.write || want.write) {
			return l, true
		}
	}
	return lock{}, false
}

// replace puts want in the place of what its owner held there.
func (fl *fileLocks) replace(want lock, unlock bool) {
	var held []lock
	for _, l := range fl.held {
		if l.owner != want.owner || !l.overlaps(want) {
			held = append(held, l)
			continue
		}
		if l.start < want.start {
			left := l
			left.end = want.start
			held = append(held, left)
		}
		if l.end > want.end {
			right := l
			right.start = want.end
			held = append(held, right)
		}
	}
	if !unlock {
		held = append(held, want)
	}
	fl.held = held
}

// whole reports whether a lock covers the whole file, as flock(2) does.
func (l lock) whole() bool { return l.start == 0 && l.end == math.MaxInt64 }

// newLock makes a lock of the fields of a request.
func newLock(f *fid, typ uint8, start, length uint64, client string, pid uint32) (lock, bool) {
	l := lock{owner: lockOwner{client, pid}, fid: f, write: typ == wire.LockWrite, start: int64(start), end: math.MaxInt64}
	if typ > wire.LockUnlock || start > math.MaxInt64 || length > math.MaxInt64-start {
		return l, false
	}
	if length > 0 {
		l.end = int64(start + length)
	}
	return l, true
}

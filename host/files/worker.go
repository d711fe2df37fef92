//go:build linux

package files

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// worker runs one request at a time, with buffers that it keeps.
type worker struct {
	s    *session
	work chan struct{}

	typ  wire.Type
	tag  uint16
	body []byte
	out  wire.Encoder

	smallBody, smallOut [small]byte
	bigBody, bigOut     *[wire.MaxSize]byte
}

// request is what a handler sees.
type request struct {
	*session
	in  *wire.Decoder
	out *wire.Encoder
	w   *worker
}

// loop runs until work is closed. Where files belong to somebody else, its
// thread takes that user's file rights for good and dies with it.
func (w *worker) loop(ready chan<- error) {
	if w.s.owner.become {
		runtime.LockOSThread()
		if err := becomeOwner(w.s.owner.uid, w.s.owner.gid); err != nil {
			ready <- err
			return
		}
	}
	ready <- nil
	for range w.work {
		w.answer()
		w.s.idle <- w
	}
}

// becomeOwner gives the calling thread the file rights of another user: the
// kernel then judges every access, names the owner of every new file, and
// drops root's power over files (CAP_DAC_OVERRIDE and its kin) from the thread.
func becomeOwner(uid, gid uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("cannot leave root's groups: %w", errno)
	}
	unix.SetfsgidRetGid(int(gid))
	unix.SetfsuidRetUid(int(uid))
	// An id that is not valid leaves all as it is and returns it.
	g, _ := unix.SetfsgidRetGid(-1)
	u, _ := unix.SetfsuidRetUid(-1)
	if uint32(g) != gid || uint32(u) != uid {
		return fmt.Errorf("cannot act as uid %d gid %d: still %d:%d", uid, gid, u, g)
	}
	return nil
}

// answer runs the request in w and sends exactly one reply.
func (w *worker) answer() {
	err := w.handle()
	if err != nil {
		w.out.Reset(wire.Rlerror, w.tag)
		w.out.U32(w.errno(err))
	}
	if err := w.s.send(w.tag, w.out.Frame()); err != nil {
		w.s.opt.Logger.Debug("reply not sent", "error", err)
	}
	w.giveBack()
}

// handle turns a bug of ours into an error of one request: bytes of a guest
// must not end the program that watches over it.
func (w *worker) handle() (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.s.opt.Logger.Error("panic in a file request", "type", w.typ, "panic", p, "stack", string(debug.Stack()))
			err = unix.EIO
		}
	}()
	op, ok := ops[w.typ]
	if !ok {
		return unix.EOPNOTSUPP
	}
	if op.changes && w.s.opt.ReadOnly {
		return unix.EROFS
	}
	w.out.Reset(w.typ+1, w.tag)
	return op.run(&request{session: w.s, in: wire.NewDecoder(w.body), out: &w.out, w: w})
}

func (w *worker) errno(err error) uint32 {
	var errno unix.Errno
	if errors.As(err, &errno) && errno != 0 {
		return uint32(errno)
	}
	w.s.opt.Logger.Error("unexpected error in a file request", "type", w.typ, "error", err)
	return uint32(unix.EIO)
}

// small is what a worker keeps between requests; larger buffers come from and
// go back to a pool that the garbage collector empties.
const small = 16 << 10

var large = sync.Pool{New: func() any { return new([wire.MaxSize]byte) }}

// take prepares the worker for a request with n bytes of body.
func (w *worker) take(t wire.Type, tag uint16, n int) {
	w.typ, w.tag = t, tag
	if n <= small {
		w.body = w.smallBody[:n]
		return
	}
	w.bigBody = large.Get().(*[wire.MaxSize]byte)
	w.body = w.bigBody[:n]
}

// room makes sure that the reply can grow to n bytes without being moved.
func (w *worker) room(n int) {
	if n > small && w.bigOut == nil {
		w.bigOut = large.Get().(*[wire.MaxSize]byte)
		w.out.Use(w.bigOut[:])
	}
}

func (w *worker) giveBack() {
	if w.bigBody != nil {
		large.Put(w.bigBody)
		w.bigBody = nil
	}
	if w.bigOut != nil {
		large.Put(w.bigOut)
		w.bigOut = nil
		w.out.Use(w.smallOut[:])
	}
}

func (w *worker) stop() { close(w.work) }

//go:build linux

package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
)

// workers is how many requests of a session run at a time. Each holds at most
// one request and one reply of wire.MaxSize, so this bounds memory as well.
const workers = 16

// session is one connection. One goroutine reads and hands each request to an
// idle worker; when none is idle it does not read, and the guest waits.
type session struct {
	conn  io.ReadWriteCloser
	in    *bufio.Reader
	root  *beneath.Root
	opt   Options
	names *names
	owner *owner

	gid uint32 // this process's own group

	fids  fidTable
	tags  tagTable
	locks lockTable
	ids   inodeIDs

	idle  chan *worker
	msize atomic.Uint32 // 0 until a version is agreed on

	sendMu sync.Mutex
	sendOK bool // false once a write failed: what was sent is then unknown
}

func newSession(conn io.ReadWriteCloser, root *beneath.Root, o Options, n *names, own *owner) *session {
	s := &session{
		conn: conn, in: bufio.NewReaderSize(conn, 8<<10),
		root: root, opt: o, names: n, owner: own, gid: own.group(),
		idle: make(chan *worker, workers), sendOK: true,
	}
	s.fids = fidTable{max: o.MaxFIDs, byID: map[uint32]*fid{}}
	s.tags = tagTable{busy: map[uint16]chan struct{}{}}
	s.locks = lockTable{guestOnly: o.ReadOnly, files: map[fileKey]*fileLocks{}}
	s.ids = inodeIDs{root: own.dev, other: map[uint64]uint64{}}
	return s
}

// run serves until the connection ends and leaves nothing open.
func (s *session) run() error {
	if err := s.startWorkers(); err != nil {
		return err
	}
	err := s.readLoop()
	s.abort() // a worker may be writing to a guest that does not read
	s.collect(workers, (*worker).stop)
	s.fids.clear(s)
	if err == io.EOF {
		return nil
	}
	return err
}

// abort ends the connection in both directions, so that nothing waits on it
// any longer. Closing a stream of the link would end only our half.
func (s *session) abort() {
	if r, ok := s.conn.(interface{ Reset() }); ok {
		r.Reset()
	}
	s.conn.Close()
}

func (s *session) startWorkers() error {
	for range workers {
		w := &worker{s: s, work: make(chan struct{})}
		w.out.Use(w.smallOut[:])
		ready := make(chan error, 1)
		go w.loop(ready)
		if err := <-ready; err != nil {
			s.collect(len(s.idle), (*worker).stop)
			return err
		}
		s.idle <- w
	}
	return nil
}

// collect waits until n workers are idle, takes them, and calls f for each.
func (s *session) collect(n int, f func(*worker)) {
	for range n {
		f(<-s.idle)
	}
}

// readLoop returns io.EOF when the connection ended between messages.
func (s *session) readLoop() error {
	for {
		var hdr [wire.HeaderSize]byte
		if _, err := io.ReadFull(s.in, hdr[:]); err != nil {
			return err
		}
		size, t, tag := wire.Header(hdr[:])
		if err := s.admit(size, t, tag); err != nil {
			return err
		}
		w := <-s.idle
		w.take(t, tag, int(size)-wire.HeaderSize)
		if _, err := io.ReadFull(s.in, w.body); err != nil {
			s.idle <- w
			return fmt.Errorf("message cut off: %w", err)
		}
		if t != wire.Tversion {
			w.work <- struct{}{}
			continue
		}
		// A version begins the session anew: nothing else may be running.
		s.idle <- w
		if err := s.version(w); err != nil {
			return err
		}
	}
}

// admit checks a header before anything is allocated for it. What a client in
// its right mind never sends ends the session.
func (s *session) admit(size uint32, t wire.Type, tag uint16) error {
	limit := s.msize.Load()
	if limit == 0 {
		if t != wire.Tversion {
			return fmt.Errorf("message of type %d before a version was agreed on", t)
		}
		limit = wire.MinSize
	}
	if size < wire.HeaderSize || size > limit {
		return fmt.Errorf("message of %d bytes: want %d to %d", size, wire.HeaderSize, limit)
	}
	if !s.tags.start(tag, t == wire.Tflush) {
		return fmt.Errorf("tag %d is in use", tag)
	}
	return nil
}

// version answers Tversion in the reading goroutine, with all workers idle.
func (s *session) version(w *worker) error {
	d := wire.NewDecoder(w.body)
	msize, version := d.U32(), d.String()
	if !d.OK() || msize < wire.MinSize {
		return errors.New("malformed version message")
	}
	all := make([]*worker, 0, workers)
	s.collect(workers, func(w *worker) { all = append(all, w) })
	s.fids.clear(s)
	msize = min(msize, wire.MaxSize)
	w.out.Reset(wire.Tversion+1, w.tag)
	w.out.U32(msize)
	// A client that speaks more (9P2000.L.x) is answered with what it extends.
	if version == wire.Version || strings.HasPrefix(version, wire.Version+".") {
		w.out.String(wire.Version)
		s.msize.Store(msize)
	} else {
		w.out.String("unknown")
	}
	err := s.send(w.tag, w.out.Frame())
	for _, w := range all {
		s.idle <- w
	}
	return err
}

// send writes the answer to a request. The tag is free from the moment the
// guest may see the answer, and a flush that waits for it answers after it.
func (s *session) send(tag uint16, frame []byte) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	defer s.tags.free(tag)()
	if !s.sendOK {
		return io.ErrClosedPipe
	}
	if _, err := s.conn.Write(frame); err != nil {
		s.sendOK = false
		s.abort()
		return err
	}
	return nil
}

// tagTable holds the requests that have not been answered.
type tagTable struct {
	mu   sync.Mutex
	busy map[uint16]chan struct{} // nil channel: a flush
}

// start takes a tag. Nobody can wait for a flush: a circle of them would wait
// for ever.
func (t *tagTable) start(tag uint16, flush bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.busy[tag]; taken {
		return false
	}
	var ch chan struct{}
	if !flush {
		ch = make(chan struct{})
	}
	t.busy[tag] = ch
	return true
}

// free gives the tag back and returns what wakes those who wait for it.
func (t *tagTable) free(tag uint16) (wake func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ch := t.busy[tag]
	delete(t.busy, tag)
	return func() {
		if ch != nil {
			close(ch)
		}
	}
}

// wait returns when the request with this tag has been answered.
func (t *tagTable) wait(tag uint16) {
	t.mu.Lock()
	ch := t.busy[tag]
	t.mu.Unlock()
	if ch != nil {
		<-ch
	}
}

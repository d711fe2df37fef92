package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// The frame layout of yamux (its spec.md): version, type, flags, stream, length.
const (
	frameHeader = 12

	frameData   = 0
	frameWindow = 1
	framePing   = 2
	frameGoAway = 3

	flagSYN = 1
	flagACK = 2
	flagFIN = 4
	flagRST = 8

	// window is the receive window of each stream, which also bounds a frame.
	window = 256 << 10
)

// ErrPeer is wrapped in a session's error when the peer broke a limit or the
// framing; the session ends then.
var ErrPeer = errors.New("the peer broke the link protocol")

type frame struct {
	version, kind byte
	flags         uint16
	stream        uint32
	length        uint32
}

func parseFrame(h []byte) frame {
	return frame{
		version: h[0], kind: h[1], flags: binary.BigEndian.Uint16(h[2:]),
		stream: binary.BigEndian.Uint32(h[4:]), length: binary.BigEndian.Uint32(h[8:]),
	}
}

func resetFrame(stream uint32) []byte {
	h := make([]byte, frameHeader)
	h[1] = frameWindow
	binary.BigEndian.PutUint16(h[2:], flagRST)
	binary.BigEndian.PutUint32(h[4:], stream)
	return h
}

// guard stands between yamux and the connection. yamux neither bounds the
// streams and pings of its peer nor checks whose number a stream has, and it
// cannot reset a stream: guard refuses the former before yamux takes memory
// for them, and adds the latter. It also joins each frame's header and body
// into one write, because a write to a virtio port is a trip to the host.
type guard struct {
	conn    Conn
	odd     uint32 // low bit of the peer's stream numbers
	maxPeer int
	maxOwn  int

	// Only yamux's one reading goroutine uses these.
	early  []byte // bytes that came with the handshake
	hdr    [frameHeader]byte
	have   int    // bytes of hdr
	body   uint32 // bytes of the current frame still to come
	broken error

	mu       sync.Mutex // guards what follows
	streams  map[uint32]*progress
	peerOpen int
	ownOpen  int    // of ours, also those about to be opened
	inject   []byte // frames for our own yamux
	reason   error  // broken, for Session.Err

	wmu  sync.Mutex // guards what follows, and is held for one write
	wbuf []byte     // what goes out with the next write
	half bool       // wbuf ends in a header that waits for its body
	next []byte     // frames that wait for that body too
}

// progress is how far the closing of a stream has come.
type progress struct{ in, out bool }

func newGuard(conn Conn, early []byte, client bool) *guard {
	g := &guard{conn: conn, early: early, streams: map[uint32]*progress{}}
	g.maxOwn, g.maxPeer = MaxStreams, MaxGuestStreams
	if !client {
		g.odd = 1
		g.maxOwn, g.maxPeer = g.maxPeer, g.maxOwn
	}
	return g
}

// reserve counts a stream of ours that is about to be opened.
func (g *guard) reserve() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ownOpen >= g.maxOwn {
		return fmt.Errorf("%d streams are open, which is the limit", g.ownOpen)
	}
	g.ownOpen++
	return nil
}

// unreserve takes back a reservation that led to no stream.
func (g *guard) unreserve() {
	g.mu.Lock()
	g.ownOpen--
	g.mu.Unlock()
}

func (g *guard) Close() error { return g.conn.Close() }

func (g *guard) Read(p []byte) (int, error) {
	for {
		if g.broken != nil {
			return 0, g.broken
		}
		if n := g.injected(p); n > 0 {
			return n, nil
		}
		n, err := g.read(p)
		if n > 0 {
			if n = g.check(p[:n]); n > 0 {
				return n, nil
			}
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			g.mu.Lock()
			_ = g.conn.SetReadDeadline(time.Time{})
			g.mu.Unlock()
			continue
		}
		return 0, err
	}
}

func (g *guard) read(p []byte) (int, error) {
	if len(g.early) > 0 {
		n := copy(p, g.early)
		g.early = g.early[n:]
		return n, nil
	}
	return g.conn.Read(p)
}

// injected hands out our own frames, between two frames of the peer.
func (g *guard) injected(p []byte) int {
	if g.have > 0 || g.body > 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := copy(p, g.inject)
	g.inject = g.inject[n:]
	// A part of a frame can only be handed out when p is shorter than one;
	// yamux reads through a buffer that is not.
	return n
}

// check looks at received bytes and returns how many may be passed on.
func (g *guard) check(p []byte) int {
	for i := 0; i < len(p); {
		if g.body > 0 {
			n := min(int(g.body), len(p)-i)
			g.body -= uint32(n)
			i += n
			continue
		}
		start := i
		n := copy(g.hdr[g.have:], p[i:])
		g.have += n
		i += n
		if g.have < frameHeader {
			break
		}
		g.have = 0
		f := parseFrame(g.hdr[:])
		if err := g.received(f); err != nil {
			g.broken = fmt.Errorf("%w: %w", ErrPeer, err)
			g.mu.Lock()
			g.reason = g.broken
			g.mu.Unlock()
			return start
		}
		if f.kind == frameData {
			g.body = f.length
		}
	}
	return len(p)
}

func (g *guard) received(f frame) error {
	switch {
	case f.version != 0 || f.kind > frameGoAway:
		return fmt.Errorf("no frame: version %d, type %d", f.version, f.kind)
	case f.kind == framePing:
		return errors.New("a ping, which this link does not use")
	case f.kind == frameGoAway:
		return nil
	case f.stream == 0:
		return errors.New("a frame for stream 0")
	case f.length > window:
		return fmt.Errorf("a frame of %d bytes, at most %d are accepted", f.length, window)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.flags&flagSYN != 0 {
		if err := g.opened(f.stream); err != nil {
			return err
		}
	}
	if s := g.streams[f.stream]; s != nil {
		s.in = s.in || f.flags&flagFIN != 0
		g.settle(f, s)
	}
	return nil
}

// opened registers a stream of the peer. mu is held.
func (g *guard) opened(id uint32) error {
	switch {
	case id&1 != g.odd:
		return fmt.Errorf("stream %d opened with a number of ours", id)
	case g.streams[id] != nil:
		return fmt.Errorf("stream %d opened twice", id)
	case g.peerOpen >= g.maxPeer:
		return fmt.Errorf("more than %d open streams", g.maxPeer)
	}
	g.streams[id] = &progress{}
	g.peerOpen++
	return nil
}

// settle forgets a stream that is over. mu is held.
func (g *guard) settle(f frame, s *progress) {
	if f.flags&flagRST != 0 || s.in && s.out {
		g.forget(f.stream)
	}
}

func (g *guard) forget(id uint32) {
	if g.streams[id] == nil {
		return
	}
	delete(g.streams, id)
	if id&1 == g.odd {
		g.peerOpen--
	} else {
		g.ownOpen--
	}
}

// Write takes a frame from yamux, which writes header and body separately.
func (g *guard) Write(p []byte) (int, error) {
	g.wmu.Lock()
	defer g.wmu.Unlock()
	g.wbuf = append(g.wbuf, p...)
	if g.half {
		g.half = false
		g.wbuf = append(g.wbuf, g.next...)
		g.next = nil
		return len(p), g.flush()
	}
	f := parseFrame(p)
	g.sent(f)
	g.half = f.kind == frameData && f.length > 0
	if g.half || f.canWait() {
		return len(p), nil
	}
	return len(p), g.flush()
}

// canWait says whether a frame may go out with the next one: the start of a
// stream, which its header follows at once, and the bare acceptance of one,
// for which nobody waits.
func (f frame) canWait() bool {
	return f.kind == frameWindow && f.length == 0 && (f.flags == flagSYN || f.flags == flagACK)
}

func (g *guard) flush() error {
	_, err := g.conn.Write(g.wbuf)
	g.wbuf = g.wbuf[:0]
	return err
}

func (g *guard) sent(f frame) {
	if f.kind > frameWindow {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.flags&flagSYN != 0 {
		g.streams[f.stream] = &progress{}
	}
	if s := g.streams[f.stream]; s != nil {
		s.out = s.out || f.flags&flagFIN != 0
		g.settle(f, s)
	}
}

// finished says whether the peer ended its half of a stream in order.
func (g *guard) finished(id uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.streams[id]
	return s == nil || s.in
}

// reset ends a stream at once on both sides: the peer gets a reset frame, and
// so does our own yamux, as if the peer had sent it.
func (g *guard) reset(id uint32) error {
	g.mu.Lock()
	if g.streams[id] == nil {
		g.mu.Unlock()
		return nil
	}
	g.forget(id)
	g.inject = append(g.inject, resetFrame(id)...)
	_ = g.conn.SetReadDeadline(past())
	g.mu.Unlock()

	g.wmu.Lock()
	defer g.wmu.Unlock()
	if g.half {
		g.next = append(g.next, resetFrame(id)...)
		return nil
	}
	g.wbuf = append(g.wbuf, resetFrame(id)...)
	return g.flush()
}

package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// bytesOf returns the bytes of a frame.
func bytesOf(f frame, body ...byte) []byte {
	h := make([]byte, frameHeader, frameHeader+len(body))
	h[0], h[1] = f.version, f.kind
	binary.BigEndian.PutUint16(h[2:], f.flags)
	binary.BigEndian.PutUint32(h[4:], f.stream)
	binary.BigEndian.PutUint32(h[8:], f.length)
	return append(h, body...)
}

// hostile returns a host's session and the connection of a peer that speaks
// in bytes. What the session sends is thrown away.
func hostile(t *testing.T) (*Session, *net.UnixConn) {
	t.Helper()
	us, them := socketpair(t)
	_ = them.SetDeadline(time.Now().Add(deadline))
	s := newSession(us, Version, nil, true)
	t.Cleanup(func() { _ = s.Close() })
	go func() { _, _ = io.Copy(io.Discard, them) }()
	return s, them
}

func open(stream uint32) []byte {
	return bytesOf(frame{kind: frameWindow, flags: flagSYN, stream: stream})
}

func data(stream uint32, body string) []byte {
	return bytesOf(frame{kind: frameData, stream: stream, length: uint32(len(body))}, []byte(body)...)
}

// header opens a stream with a valid header.
func header(stream uint32) []byte {
	return append(open(stream), data(stream, `{"type":"log"}`+"\n")...)
}

func TestBrokenFramesEndTheSession(t *testing.T) {
	many := []byte{}
	for i := range uint32(MaxGuestStreams + 1) {
		many = append(many, open(2+2*i)...)
	}
	for want, sent := range map[string][]byte{
		"more than 64 open streams":                         many,
		"version 9, type 0":                                 bytesOf(frame{version: 9}),
		"version 0, type 4":                                 bytesOf(frame{kind: 4}),
		"version 71, type 69":                               []byte("GET / HTTP/1.1\r\n\r\n"),
		"a ping":                                            bytesOf(frame{kind: framePing, flags: flagSYN}),
		"a frame for stream 0":                              open(0),
		"stream 3 opened with a number of ours":             open(3),
		"stream 2 opened twice":                             append(open(2), open(2)...),
		"a frame of 4294967295 bytes, at most 262144":       bytesOf(frame{kind: frameData, stream: 2, length: 1<<32 - 1}),
		"a frame of 262145 bytes, at most 262144":           bytesOf(frame{kind: frameWindow, stream: 2, length: window + 1}),
		"a frame of 262145 bytes, at most 262144 are accep": append(open(2), bytesOf(frame{kind: frameData, stream: 2, length: window + 1})...),
	} {
		t.Run(want, func(t *testing.T) {
			s, peer := hostile(t)
			_, _ = peer.Write(sent)
			<-s.Done()
			if err := s.Err(); !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), want) {
				t.Errorf("session ended with: %v", err)
			}
		})
	}
}

func TestWindowExceeded(t *testing.T) {
	s, peer := hostile(t)
	_, _ = peer.Write(header(2))
	if _, _, err := s.Accept(); err != nil { // and never read
		t.Fatal(err)
	}
	for range 2 {
		_, _ = peer.Write(data(2, strings.Repeat("x", window)))
	}
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "recv window exceeded") {
		t.Error(err)
	}
}

// TestMemoryOfAHostilePeerIsBounded fills every stream that a guest may open,
// and has them all wait for a reader that never comes.
func TestMemoryOfAHostilePeerIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, peer := hostile(t)
	for i := range uint32(MaxGuestStreams) {
		_, _ = peer.Write(header(2 + 2*i))
		_, _ = peer.Write(data(2+2*i, strings.Repeat("x", window-len(`{"type":"log"}`)-1)))
	}
	for range MaxGuestStreams { // all have arrived
		if _, _, err := s.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if limit := int64(MaxGuestStreams * window * 3); grown > limit {
		t.Errorf("%d bytes, limit %d", grown, limit)
	}
	t.Logf("%d KiB", grown>>10)
}

func TestBadHeadersEndTheirStreamOnly(t *testing.T) {
	s, peer := hostile(t)
	long := `{"type":"` + strings.Repeat("x", MaxHeader) + `"}` + "\n"
	for i, line := range []string{"no JSON\n", long, long[:MaxHeader+1], `{"type":"log","colour":"red"}` + "\n", `{"type":"log"} {}` + "\n", "\n", "[]\n", `{"type":7}` + "\n"} {
		id := uint32(2 + 2*i)
		_, _ = peer.Write(append(open(id), data(id, line)...))
	}
	// A stream that never sends a header holds up nobody.
	_, _ = peer.Write(open(100))
	_, _ = peer.Write(header(102))
	h, _, err := s.Accept()
	if err != nil || h.Type != StreamLog {
		t.Fatal(h, err)
	}
}

func TestFramesOfUnknownStreamsAreSkipped(t *testing.T) {
	s, peer := hostile(t)
	_, _ = peer.Write(data(50, "late"))
	_, _ = peer.Write(bytesOf(frame{kind: frameWindow, flags: flagFIN, stream: 51}))
	_, _ = peer.Write(resetFrame(52))
	_, _ = peer.Write(header(2))
	if _, _, err := s.Accept(); err != nil {
		t.Fatal(err)
	}
}

// TestResetIsCheap opens and resets more streams than may be open at once.
func TestResetIsCheap(t *testing.T) {
	h, g := established(t)
	go func() {
		for {
			_, s, err := g.Accept()
			if err != nil {
				return
			}
			_, _ = s.Write([]byte("under way"))
		}
	}()
	for range 4 * MaxStreams {
		s, err := h.OpenStream(StreamHeader{Type: StreamCall})
		if err != nil {
			t.Fatal(err)
		}
		s.Reset()
	}
	if n := h.mux.NumStreams(); n > 0 {
		_, _ = h.OpenStream(StreamHeader{Type: StreamCall}) // a trip through the reader
	}
}

// control returns a control stream of a session and its hostile end.
func control(t *testing.T) (*ControlConn, *Stream) {
	t.Helper()
	h, g := established(t)
	ours, theirs := pair(t, h, g)
	return NewControl(ours), theirs
}

func TestControlIsStrict(t *testing.T) {
	for sent, want := range map[string]string{
		`{}`:                                  "exactly one field must be set, found []",
		`{"ping":{"n":1},"go":{"app":"a"}}`:   `found ["go" "ping"]`,
		`{"ping":null}`:                       "found []",
		`{"ping":{"n":1,"m":2}}`:              "unknown field",
		`{"pang":{}}`:                         "unknown field",
		`{"ping":{"n":1}} {}`:                 "more than one JSON value",
		`{"ping":{"n":1e99}}`:                 "cannot unmarshal",
		`{"ping":{"n":"1"}}`:                  "cannot unmarshal",
		`[1]`:                                 "cannot unmarshal",
		``:                                    "EOF",
		`{"ping":` + strings.Repeat("[", 1e5): "exceeded max depth",
		strings.Repeat(" ", MaxControl+1):     "line of more than",
	} {
		c, peer := control(t)
		go func() { _, _ = peer.Write([]byte(sent + "\n")) }()
		if m, err := c.Receive(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %+v, %v; want %s", sent, m, err, want)
		}
	}
}

func TestControlAtTheEnd(t *testing.T) {
	c, peer := control(t)
	_ = peer.CloseWrite()
	if _, err := c.Receive(); err != io.EOF {
		t.Error(err)
	}
	c, peer = control(t)
	_, _ = peer.Write([]byte(`{"ping"`))
	_ = peer.CloseWrite()
	if _, err := c.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if err := c.Send(Control{}); err == nil {
		t.Error("sent nothing")
	}
	if err := c.Send(Control{Start: &Start{Policy: make([]byte, MaxControl)}}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

func TestLinesSplitAnywhere(t *testing.T) {
	c, peer := control(t)
	text := `{"failed":{"step":"x","reason":"` + strings.Repeat("é€😀", 5000) + `"}}` + "\n"
	go func() {
		for rest := []byte(text); len(rest) > 0; {
			n := min(len(rest), 7)
			_, _ = peer.Write(rest[:n])
			rest = rest[n:]
		}
	}()
	m, err := c.Receive()
	if err != nil || m.Failed == nil || m.Failed.Reason != strings.Repeat("é€😀", 5000) {
		t.Error(err)
	}
}

// endless is a peer that sends junk without end and reads nothing.
type endless struct {
	net.Conn
	sent int
}

func (e *endless) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte("junk "), len(p)/5+1))
	e.sent += len(p)
	return len(p), nil
}

func TestEndlessJunkIsRefused(t *testing.T) {
	us, _ := socketpair(t)
	for side, open := range map[string]func(Conn) error{
		"host":  func(c Conn) error { _, err := Host(t.Context(), c); return err },
		"guest": func(c Conn) error { _, err := Guest(t.Context(), c); return err },
	} {
		e := &endless{Conn: us}
		if err := open(e); !errors.Is(err, errJunk) || e.sent > 2*MaxJunk {
			t.Errorf("%s: %v after %d bytes", side, err, e.sent)
		}
	}
}

func FuzzSession(f *testing.F) {
	f.Add(header(2))
	f.Add(append(header(2), resetFrame(2)...))
	f.Add(append(open(2), bytesOf(frame{kind: frameData, flags: flagFIN, stream: 2})...))
	f.Add(bytesOf(frame{kind: frameGoAway, length: 1}))
	f.Add(bytesOf(frame{kind: frameWindow, flags: flagACK | flagFIN | flagRST, stream: 1, length: window}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		s, peer := hostile(t)
		ours, err := s.OpenStream(StreamHeader{Type: StreamCall}) // stream 1, for its states
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, _, err := s.Accept(); err != nil {
					return
				}
			}
		}()
		_, _ = peer.Write(sent)
		_ = ours.CloseWrite()
		ours.Reset()
		_ = peer.CloseWrite()
		<-s.Done()
	})
}

package link

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is an upper bound that a hanging test runs into, never a timing.
const deadline = 30 * time.Second

// socketpair returns two ends of a connected unix stream socket.
func socketpair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// established returns both sides of a session.
func established(t *testing.T) (hostSide, guestSide *Session) {
	t.Helper()
	a, b := socketpair(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	guestDone := make(chan error, 1)
	go func() {
		var err error
		guestSide, err = Guest(ctx, b)
		guestDone <- err
	}()
	hostSide, err := Host(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-guestDone; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hostSide.Close()
		_ = guestSide.Close()
	})
	return hostSide, guestSide
}

// pair opens a stream from the host and returns both ends.
func pair(t *testing.T, hostSide, guestSide *Session) (*Stream, *Stream) {
	t.Helper()
	mine, err := hostSide.OpenStream(StreamHeader{Type: StreamCall, App: "a"})
	if err != nil {
		t.Fatal(err)
	}
	header, theirs, err := guestSide.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if header != (StreamHeader{Type: StreamCall, App: "a"}) {
		t.Fatalf("header %+v", header)
	}
	return mine, theirs
}

func TestStreamsBothWays(t *testing.T) {
	h, g := established(t)
	if h.Version() != Version || g.Version() != Version {
		t.Fatalf("versions %d, %d", h.Version(), g.Version())
	}
	log, err := g.OpenStream(StreamHeader{Type: StreamLog})
	if err != nil {
		t.Fatal(err)
	}
	header, theirs, err := h.Accept()
	if err != nil || header.Type != StreamLog {
		t.Fatal(header, err)
	}
	want := LogRecord{App: "a", Stream: "stdout", Line: "é\x1b[0m<&>", Dropped: 3}
	if err := log.SendLog(want); err != nil {
		t.Fatal(err)
	}
	if got, err := theirs.ReceiveLog(); err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
	mine, call := pair(t, h, g)
	if err := call.SendReply(errors.New("no app \"a\"")); err != nil {
		t.Fatal(err)
	}
	err = mine.ReceiveReply()
	if !errors.Is(err, ErrRefused) || err.Error() != "no app \"a\"" {
		t.Fatal(err)
	}
}

func TestHalfClose(t *testing.T) {
	h, g := established(t)
	mine, theirs := pair(t, h, g)
	if _, err := mine.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := mine.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(theirs); err != nil || string(got) != "question" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := theirs.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(mine); err != nil || string(got) != "answer" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := mine.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if h.mux.NumStreams() != 0 || h.guard.ownOpen != 0 {
		t.Fatalf("%d streams left, %d counted", h.mux.NumStreams(), h.guard.ownOpen)
	}
}

func TestBulkIsByteExact(t *testing.T) {
	h, g := established(t)
	mine, theirs := pair(t, h, g)
	const size = 64 << 20
	want := sha256.New()
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		buf := make([]byte, 1<<20)
		for sent := 0; sent < size; {
			n := min(1+r.IntN(len(buf)), size-sent)
			for i := range buf[:n] {
				buf[i] = byte(r.Uint32())
			}
			want.Write(buf[:n])
			if _, err := mine.Write(buf[:n]); err != nil {
				t.Error(err)
				break
			}
			sent += n
		}
		_ = mine.CloseWrite()
	}()
	got := sha256.New()
	n, err := io.Copy(got, theirs)
	if err != nil || n != size {
		t.Fatal(n, err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Fatal("bytes differ")
	}
	_ = theirs.Close()
}

func TestReset(t *testing.T) {
	h, g := established(t)
	mine, theirs := pair(t, h, g)
	read := make(chan error, 2)
	for _, s := range []*Stream{mine, theirs} {
		go func() {
			_, err := s.Read(make([]byte, 1))
			read <- err
		}()
	}
	mine.Reset()
	for range 2 {
		if err := <-read; !errors.Is(err, ErrReset) {
			t.Fatal(err)
		}
	}
	if _, err := theirs.Write([]byte("x")); !errors.Is(err, ErrReset) {
		t.Fatal(err)
	}
	// The session goes on, and nothing is counted any more.
	mine, theirs = pair(t, h, g)
	if _, err := mine.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if h.mux.NumStreams() != 1 || h.guard.ownOpen != 1 || g.mux.NumStreams() != 1 || g.guard.peerOpen != 1 {
		t.Fatal(h.mux.NumStreams(), h.guard.ownOpen, g.mux.NumStreams(), g.guard.peerOpen)
	}
}

func TestStalledReaderStopsItsOwnStreamOnly(t *testing.T) {
	h, g := established(t)
	stalled, _ := pair(t, h, g)
	other, theirs := pair(t, h, g)
	if err := stalled.SetWriteDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := stalled.Write(make([]byte, 8<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > window {
		t.Fatalf("wrote %d: %v", n, err)
	}
	go func() {
		_, _ = other.Write(make([]byte, 4<<20))
		_ = other.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, theirs); err != nil || n != 4<<20 {
		t.Fatal(n, err)
	}
}

func TestOwnStreamLimit(t *testing.T) {
	h, g := established(t)
	go func() {
		for {
			if _, _, err := h.Accept(); err != nil {
				return
			}
		}
	}()
	var streams []*Stream
	for range MaxGuestStreams {
		s, err := g.OpenStream(StreamHeader{Type: StreamShare})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	if _, err := g.OpenStream(StreamHeader{Type: StreamShare}); err == nil || !strings.Contains(err.Error(), "64 streams are open") {
		t.Fatal(err)
	}
	streams[0].Reset()
	if _, err := g.OpenStream(StreamHeader{Type: StreamShare}); err != nil {
		t.Fatal(err)
	}
}

func TestEndOfSessionIsNoEndOfStream(t *testing.T) {
	h, g := established(t)
	_, theirs := pair(t, h, g)
	_ = h.Close()
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	<-g.Done()
	if err := g.Err(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := h.Err(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, _, err := g.Accept(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := h.OpenStream(StreamHeader{Type: StreamCall}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

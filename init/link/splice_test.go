package link

import (
	"errors"
	"io"
	"net"
	"testing"
)

// spliced returns a host's stream whose other end a guest splices to a
// connection, and the far end of that: what an app holds.
func spliced(t *testing.T) (*Stream, *net.UnixConn, <-chan error) {
	t.Helper()
	h, g := established(t)
	ours, theirs := pair(t, h, g)
	near, app := socketpair(t)
	done := make(chan error, 1)
	go func() { done <- Splice(theirs, near) }()
	return ours, app, done
}

func TestSplicePassesHalfCloses(t *testing.T) {
	ours, app, done := spliced(t)
	_, _ = ours.Write([]byte("ask"))
	_ = ours.CloseWrite()
	if got, err := io.ReadAll(app); err != nil || string(got) != "ask" {
		t.Fatalf("%q, %v", got, err)
	}
	_, _ = app.Write([]byte("answer"))
	_ = app.CloseWrite()
	if got, err := io.ReadAll(ours); err != nil || string(got) != "answer" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSplicePassesResets(t *testing.T) {
	ours, app, done := spliced(t)
	_, _ = ours.Write([]byte("ask"))
	if _, err := io.ReadFull(app, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	ours.Reset()
	if n, err := app.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error(n, err)
	}
	if err := <-done; !errors.Is(err, ErrReset) {
		t.Error(err)
	}
}

// TestSpliceOfADeadApp has a host that sends more than the stream holds to an
// app that is gone: it must neither hang nor go on for ever.
func TestSpliceOfADeadApp(t *testing.T) {
	ours, app, done := spliced(t)
	_ = app.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := ours.Write(make([]byte, 64<<20))
		sent <- err
		_ = ours.CloseWrite()
	}()
	if n, err := ours.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error(n, err)
	}
	<-sent
	<-done
}

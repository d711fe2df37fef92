package control

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berthos/berth/init/link"
)

// echo is a sandbox with one app, which sends back what it is sent.
type echo struct{ logs chan link.LogRecord }

func (e echo) Describe() Description {
	return Description{ID: "one", Apps: []App{{Name: "echo", Policy: []byte("{}")}}}
}

func (e echo) Open(_ context.Context, _ Peer, app, _ string) (link.Half, error) {
	if app != "echo" {
		return nil, errors.New(`cannot call app "` + app + `": this sandbox runs echo`)
	}
	a, b, err := pair()
	if err != nil {
		return nil, err
	}
	go func() {
		io.Copy(b, b)
		b.CloseWrite()
		b.Close()
	}()
	return a, nil
}

func (e echo) Names(since time.Time) Names {
	return Names{List: []Name{{Place: ".envrc", Op: since.UTC().Format(time.RFC3339), Refused: true}}}
}

func (e echo) Denials(ctx context.Context, app string, since time.Time) (Denials, error) {
	if app != "echo" {
		return Denials{}, errors.New("no such app")
	}
	_, bounded := ctx.Deadline()
	return Denials{Kept: true, Complete: bounded, Calls: 1, Records: []link.DenialRecord{{App: app, UnixNano: since.UnixNano()}}}, nil
}

func (e echo) Why(context.Context, string) error { return errors.New("echo ended: told to") }

func (echo) Stop() error { return errors.New("it stays") }

func (e echo) Logs(ctx context.Context) <-chan link.LogRecord { return e.logs }

func pair() (*net.UnixConn, *net.UnixConn, error) {
	dir, err := os.MkdirTemp("", "pair")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	addr := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	a, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return nil, nil, err
	}
	b, err := l.AcceptUnix()
	return a, b, err
}

// serveEcho runs a server in root/one and returns the backend's log channel.
func serveEcho(t *testing.T, root string) chan link.LogRecord {
	t.Helper()
	dir := filepath.Join(root, "one")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := echo{logs: make(chan link.LogRecord, 4)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, b, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	return b.logs
}

func TestFindAndCall(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	stale := filepath.Join(root, "stale")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, Socket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clients, found, silent, err := Find(t.Context(), root)
	if err != nil || len(found) != 1 || found[0].ID != "one" || len(silent) > 0 {
		t.Fatalf("Find = %v, %v, %v; want the one that answers", found, silent, err)
	}
	conn, err := clients[0].Open(t.Context(), "echo", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const text = "line one\nline two"
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	conn.CloseWrite()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != text {
		t.Errorf("got %q, %v, want %q", got, err, text)
	}
}

func TestUnknownApp(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	clients, _, _, err := Find(t.Context(), root)
	if err != nil || len(clients) != 1 {
		t.Fatal(clients, err)
	}
	if _, err := clients[0].Open(t.Context(), "other", ""); err == nil || !strings.Contains(err.Error(), "this sandbox runs echo") {
		t.Errorf("Open = %v, want the backend's error", err)
	}
}

func TestLogs(t *testing.T) {
	root := t.TempDir()
	logs := serveEcho(t, root)
	clients, _, _, err := Find(t.Context(), root)
	if err != nil || len(clients) != 1 {
		t.Fatal(clients, err)
	}
	logs <- link.LogRecord{App: "echo", Stream: "stdout", Line: "a\x1bb\nc"}
	close(logs)
	var got []string
	err = clients[0].Logs(t.Context(), func(r link.LogRecord) error {
		got = append(got, r.Line)
		return nil
	})
	if err != nil || len(got) != 1 || got[0] != "a\x1bb\nc" {
		t.Errorf("Logs = %q, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	clients, _, _, err := Find(t.Context(), root)
	if err != nil || len(clients) != 1 {
		t.Fatal(clients, err)
	}
	since := time.Unix(100, 0)
	n, err := clients[0].Names(t.Context(), since)
	if err != nil || len(n.List) != 1 || n.List[0].Op != "1970-01-01T00:01:40Z" || !n.List[0].Refused {
		t.Errorf("Names = %+v, %v", n, err)
	}
}

func TestDenials(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	clients, _, _, err := Find(t.Context(), root)
	if err != nil || len(clients) != 1 {
		t.Fatal(clients, err)
	}
	since := time.Unix(1_800_000_000, 5)
	d, err := clients[0].Denials(t.Context(), "echo", since, time.Second)
	if err != nil || !d.Kept || !d.Complete || d.Calls != 1 || len(d.Records) != 1 || d.Records[0].UnixNano != since.UnixNano() {
		t.Errorf("Denials = %+v, %v", d, err)
	}
	if _, err := clients[0].Denials(t.Context(), "other", since, time.Second); err == nil {
		t.Error("denials of an app that does not run")
	}
}

func TestBadRequests(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	for _, bad := range []string{"not json\n", `{"kind":"sing"}` + "\n", `{"kind":"call","spoof":1}` + "\n", `{"kind":`} {
		conn, err := net.Dial("unix", filepath.Join(root, "one", Socket))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, bad); err != nil {
			t.Fatal(err)
		}
		conn.(*net.UnixConn).CloseWrite()
		answer, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || strings.Contains(string(answer), "description") {
			t.Errorf("%q was answered %q, %v", bad, answer, err)
		}
	}
}

// TestWhy: who lost a call learns what died.
func TestWhy(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	clients, _, _, err := Find(t.Context(), root)
	if err != nil || len(clients) != 1 {
		t.Fatal(clients, err)
	}
	if err := clients[0].Why(t.Context(), "echo"); err == nil || err.Error() != "echo ended: told to" {
		t.Errorf("Why = %v", err)
	}
	if err := (Client{path: filepath.Join(root, "none", Socket)}).Why(t.Context(), "echo"); !errors.Is(err, ErrGone) {
		t.Errorf("Why of a sandbox that is gone = %v", err)
	}
}

// TestSilent: a berth that is stopped accepts connections and answers none; the
// others are found all the same.
func TestSilent(t *testing.T) {
	root := t.TempDir()
	serveEcho(t, root)
	dir := filepath.Join(root, "stopped")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir) // the kernel accepts for it
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, found, silent, err := Find(t.Context(), root)
	if err != nil || len(found) != 1 || !slices.Equal(silent, []string{"stopped"}) {
		t.Errorf("Find = %v, %v, %v; want the one that answers, and the name of the other", found, silent, err)
	}
}

// TestLongPath: a runtime folder may lie deeper than a socket's address reaches.
func TestLongPath(t *testing.T) {
	root := filepath.Join(t.TempDir(), strings.Repeat("d", 150))
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	serveEcho(t, root)
	clients, found, _, err := Find(t.Context(), root)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	conn, err := clients[0].Open(t.Context(), "echo", "")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// deaf is an app that never ends its half of a call.
type deaf struct {
	echo
	far chan *net.UnixConn
}

func (d deaf) Open(context.Context, Peer, string, string) (link.Half, error) {
	near, far, err := pair()
	if err == nil {
		d.far <- far
	}
	return near, err
}

// TestEndsWithAppThatHoldsOn: Serve ends with its context although the caller
// has gone and the app keeps its connection.
func TestEndsWithAppThatHoldsOn(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := deaf{far: make(chan *net.UnixConn, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, b, nil) }()
	conn, err := Client{path: filepath.Join(dir, Socket)}.Open(t.Context(), "app", "")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	far := <-b.far
	defer far.Close()
	if _, err := io.ReadAll(far); err != nil { // the caller's end has come through
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

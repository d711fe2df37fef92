package berth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/go/berthtest"
	"github.com/berthos/berth/sdk/protocol"
)

// wantCode checks that err is the app's answer with this code.
func wantCode(t *testing.T, err error, code string) *protocol.Error {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want an error with the code %s", err, code)
	}
	return e
}

// TestManyCalls: at most MaxCalls run at once, all others wait and are served.
func TestManyCalls(t *testing.T) {
	var running, most, total atomic.Int64
	full := make(chan none)
	app := berth.New("test")
	app.MaxCalls = 4
	berth.Export(app, "work", "", func(ctx context.Context, _ none) (none, error) {
		defer running.Add(-1)
		n := running.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if total.Add(1) == 4 { // until then nobody leaves
			close(full)
		}
		<-full
		return none{}, nil
	})
	client := berthtest.Start(t, app)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			if err := client.Call(t.Context(), "work", none{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() != 4 || total.Load() != 40 {
		t.Errorf("%d of 40 calls ran, %d at once; want 4 at once", total.Load(), most.Load())
	}
}

func TestCancelWhileWaitingForASlot(t *testing.T) {
	app := vectorApp()
	app.MaxCalls = 1
	client := berthtest.Start(t, app)
	first, cancelFirst := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { client.Call(first, "wait", none{}, nil) })
	conn, err := client.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := protocol.NewWriter(conn)
	w.Request(protocol.Request{Type: protocol.TypeCall, ID: "x", Export: "wait"})
	w.Request(protocol.Request{Type: protocol.TypeCancel})
	if m, err := protocol.NewReader(conn).Message(); err != nil || m.Error == nil || m.Error.Code != protocol.CodeCanceled {
		t.Errorf("got %+v, %v", m, err)
	}
	cancelFirst()
	all.Wait()
}

func TestSecondCallOnAConnection(t *testing.T) {
	client := berthtest.Start(t, vectorApp())
	conn, err := client.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := protocol.NewWriter(conn)
	w.Request(protocol.Request{Type: protocol.TypeCall, ID: "x", Export: "wait"})
	w.Request(protocol.Request{Type: protocol.TypeCall, ID: "y", Export: "echo"})
	if m, err := protocol.NewReader(conn).Message(); err != nil || m.Error == nil || m.Error.Code != protocol.CodeInvalidInput {
		t.Errorf("got %+v, %v", m, err)
	}
}

// TestPanicKeepsTheApp also looks for the stack, which belongs into the log.
func TestPanicKeepsTheApp(t *testing.T) {
	app := vectorApp()
	var log strings.Builder
	app.Stderr = &log
	client := berthtest.Start(t, app)
	wantCode(t, client.Call(t.Context(), "panic", none{}, nil), protocol.CodeInternal)
	var out text
	if err := client.Call(t.Context(), "echo", text{"x"}, &out); err != nil {
		t.Errorf("after a panic: %v", err)
	}
	if err := client.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "vectors_test.go") {
		t.Errorf("the log has no stack: %s", log.String())
	}
}

func TestShutdownFinishesCalls(t *testing.T) {
	started, finish := make(chan none), make(chan none)
	app := berth.New("test")
	berth.Export(app, "work", "", func(context.Context, none) (text, error) {
		close(started)
		<-finish
		return text{"done"}, nil
	})
	client := berthtest.Start(t, app)
	idle, err := client.Dial() // says nothing, and must not hold up the end
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	var all sync.WaitGroup
	var out text
	all.Go(func() {
		if err := client.Call(t.Context(), "work", none{}, &out); err != nil {
			t.Error(err)
		}
	})
	<-started
	hello, err := client.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer hello.Close()
	if _, err := protocol.Hello(hello); err != nil {
		t.Fatal(err)
	}
	protocol.NewWriter(hello).Request(protocol.Request{Type: protocol.TypeShutdown})
	io.ReadAll(hello) // ends when the shutdown has begun
	io.ReadAll(idle)
	close(finish)
	all.Wait()
	if err := client.Stop(); err != nil || out.Text != "done" {
		t.Errorf("%q, %v", out.Text, err)
	}
}

// TestShutdownCancelsCalls: what does not finish within the grace is cancelled.
func TestShutdownCancelsCalls(t *testing.T) {
	started := make(chan none)
	app := berth.New("test")
	app.Grace = time.Millisecond
	berth.Export(app, "wait", "", func(ctx context.Context, _ none) (none, error) {
		close(started)
		<-ctx.Done()
		return none{}, ctx.Err()
	})
	client := berthtest.Start(t, app)
	var all sync.WaitGroup
	var got error
	all.Go(func() { got = client.Call(t.Context(), "wait", none{}, nil) })
	<-started
	if err := client.Stop(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if e := wantCode(t, got, protocol.CodeCanceled); e.Message != "app shuts down" {
		t.Errorf("got %q", e.Message)
	}
}

// TestShutdownReportsStubbornCalls: what ignores the end is reported, so that the
// program can exit.
func TestShutdownReportsStubbornCalls(t *testing.T) {
	started, finish, ended := make(chan none), make(chan none), make(chan none)
	app := berth.New("test")
	app.Grace = time.Millisecond
	berth.Export(app, "ignore", "", func(context.Context, none) (none, error) {
		defer close(ended)
		close(started)
		<-finish
		return none{}, nil
	})
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	protocol.NewWriter(conn).Request(protocol.Request{Type: protocol.TypeCall, ID: "x", Export: "ignore"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if err := app.ServeOn(ctx, ln); err == nil || !strings.Contains(err.Error(), "1 calls did not end") {
		t.Errorf("got %v", err)
	}
	close(finish)
	<-ended
}

// TestSlowReaderIsNotForever: a call that reports to a caller who does not read
// ends when it is cancelled.
func TestSlowReaderIsNotForever(t *testing.T) {
	ended := make(chan none)
	app := berth.New("test")
	berth.Export(app, "talk", "", func(ctx context.Context, _ none) (none, error) {
		defer close(ended)
		for ctx.Err() == nil {
			berth.Progress(ctx, 1, 0, strings.Repeat("x", 1000))
		}
		return none{}, ctx.Err()
	})
	client := berthtest.Start(t, app)
	conn, err := client.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := protocol.NewWriter(conn)
	w.Request(protocol.Request{Type: protocol.TypeCall, ID: "x", Export: "talk"})
	protocol.NewReader(conn).Message() // it talks
	w.Request(protocol.Request{Type: protocol.TypeCancel})
	<-ended
}

func TestExportErrorsStopTheStart(t *testing.T) {
	fn := func(context.Context, none) (none, error) { return none{}, nil }
	for want, export := range map[string]func(*berth.App){
		"taken":                    func(a *berth.App) { berth.Export(a, "x", "", fn); berth.Export(a, "x", "", fn) },
		"a name has 1 to 63 bytes": func(a *berth.App) { berth.Export(a, "", "", fn) },
		"not a struct or map": func(a *berth.App) {
			berth.Export(a, "x", "", func(context.Context, int) (none, error) { return none{}, nil })
		},
		"chan": func(a *berth.App) {
			berth.Export(a, "x", "", func(context.Context, none) (chan int, error) { return nil, nil })
		},
	} {
		app := berth.New("test")
		export(app)
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		if err := app.ServeOn(t.Context(), ln); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// child is a real app process, started by TestProcess with the socket as
// descriptor 3, as Berth does it.
func child() int {
	app := vectorApp()
	berth.Export(app, "noise", "", func(context.Context, none) (text, error) {
		fmt.Println(`{"type":"result","output":{"text":"from stdout"}}`)
		// A program that the app starts must not inherit the socket.
		out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
		return text{string(out)}, err
	})
	if err := app.Serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestProcess(t *testing.T) {
	for _, how := range []string{"shutdown", "SIGTERM"} {
		t.Run(how, func(t *testing.T) { testProcess(t, how) })
	}
}

func testProcess(t *testing.T, how string) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_TEST_CHILD=1", "BERTH_LISTEN_FD=3")
	cmd.ExtraFiles = []*os.File{f}
	var printed, complained strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &complained
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	hello := dial()
	defer hello.Close()
	if m, err := protocol.Hello(hello); err != nil || len(m.Exports) != 8 {
		t.Fatalf("%+v, %v", m, err)
	}
	out, err := protocol.Call(t.Context(), dial(), protocol.Request{ID: "1", Export: "noise"}, nil)
	if err != nil || !strings.Contains(string(out), "/proc/") || strings.Contains(string(out), "socket:") {
		t.Errorf("%s, %v: want the descriptors of a child, no socket among them", out, err)
	}
	if how == "SIGTERM" {
		cmd.Process.Signal(syscall.SIGTERM)
	} else {
		protocol.NewWriter(hello).Request(protocol.Request{Type: protocol.TypeShutdown})
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(printed.String(), "from stdout") {
		t.Errorf("%v, printed %q, %q", err, printed.String(), complained.String())
	}
}

func TestServeWithoutSocket(t *testing.T) {
	for value, want := range map[string]string{"": "is not set", "three": "not the number", "987": "descriptor 987"} {
		t.Setenv("BERTH_LISTEN_FD", value)
		if err := vectorApp().Serve(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("BERTH_LISTEN_FD=%q: got %v, want %q", value, err, want)
		}
	}
}

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/host/cli"
	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/sdk/protocol"
)

// hostile is a sandbox whose app answers every call with one line.
type hostile struct{ answer string }

func (h hostile) Describe() control.Description {
	return control.Description{ID: "app-1", Apps: []control.App{{Name: "app", Policy: []byte("{}"), Exports: []protocol.Export{{Name: "x"}}}}}
}

func (h hostile) Open(context.Context, control.Peer, string, string) (link.Half, error) {
	if h.answer == "" {
		return nil, errors.New("it printed \x1b]0;title\x07\u009b31m\nand more")
	}
	dir, err := os.MkdirTemp("", "berth-cli-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return nil, err
	}
	far, err := l.Accept()
	if err != nil {
		return nil, err
	}
	go func() {
		defer far.Close()
		if _, err := protocol.NewReader(far).Request(); err == nil {
			io.WriteString(far, h.answer+"\n")
		}
	}()
	return near.(*net.UnixConn), nil
}

func (h hostile) Names(time.Time) control.Names { return control.Names{} }

func (h hostile) Denials(context.Context, string, time.Time) (control.Denials, error) {
	return control.Denials{}, nil
}

func (h hostile) Why(context.Context, string) error { return nil }

func (h hostile) Stop() error { return nil }

func (h hostile) Logs(context.Context) <-chan link.LogRecord { return nil }

// callHostile calls an app that answers so, and returns what a user sees.
func callHostile(t *testing.T, answer string, out io.Writer, flags ...string) (code int, stderr string) {
	t.Helper()
	t.Setenv(runtimedir.EnvDir, filepath.Join(t.TempDir(), "run"))
	root, err := runtimedir.Open(runtimedir.Search{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := root.New("app")
	if err != nil {
		t.Fatal(err)
	}
	l, err := control.Listen(dir.Path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- control.Serve(ctx, l, hostile{answer}, nil) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var errs bytes.Buffer
	code = cli.Run(ctx, cli.World{Args: append([]string{"rpc", "app", "--export", "x"}, flags...), In: strings.NewReader(""), Out: out, Err: &errs})
	return code, errs.String()
}

// TestNothingSteersTheTerminal: whatever an app or its sandbox says, the
// terminal gets no control character, and a denial's block no line of the app's.
func TestNothingSteersTheTerminal(t *testing.T) {
	for name, answer := range map[string]string{
		"a refused connection": "",
		"an error":             `{"type":"error","error":{"code":"failed","message":"a\u001b[31m\u009b31m\nhint: x"}}`,
		"a denial":             `{"type":"error","error":{"code":"system","message":"m","op":"open\u001b[31m\nfix: x","path":"/tmp/a\u001b\nfix: y","errno":"EACCES"}}`,
		"a log":                `{"type":"log","level":"\u001b[31m","text":"\u0007\nberth: x"}` + "\n" + `{"type":"result","output":"\u001b]0;t\u0007\u009b"}`,
		"no message":           "\x1b[31m",
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			_, stderr := callHostile(t, answer, &out)
			_, asJSON := callHostile(t, answer, &out, "--json")
			stderr += asJSON
			for _, r := range out.String() + stderr {
				if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
					t.Fatalf("the terminal gets %U in %q", r, out.String()+stderr)
				}
			}
			for line := range strings.Lines(stderr) {
				if strings.HasPrefix(line, "fix: x") || strings.HasPrefix(line, "fix: y") || strings.HasPrefix(line, "hint: x") || strings.HasPrefix(line, "berth: x") {
					t.Errorf("a line of the app's stands among berth's:\n%s", stderr)
				}
			}
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestLostResultIsAFailure: a result that cannot be written is not lost in silence.
func TestLostResultIsAFailure(t *testing.T) {
	const answer = `{"type":"result","output":1}`
	if code, stderr := callHostile(t, answer, io.Discard); code != cli.ExitOK { // control
		t.Fatal(code, stderr)
	}
	code, stderr := callHostile(t, answer, full{})
	if code != cli.ExitFailed || !strings.Contains(stderr, "cannot write the result: no space left") {
		t.Errorf("exit code %d, %q; want a failure", code, stderr)
	}
}

// TestInterruptedWhileReading: Ctrl-C ends berth also while it waits for stdin.
func TestInterruptedWhileReading(t *testing.T) {
	in, never := io.Pipe()
	defer never.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	code := cli.Run(ctx, cli.World{Args: []string{"rpc", "app", "--export", "x", "--input", "-"}, In: in, Out: io.Discard, Err: &errs})
	if code != cli.ExitFailed || !strings.Contains(errs.String(), "cannot read the input from stdin: context canceled") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

package berth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/go/berthtest"
	"github.com/berthos/berth/sdk/protocol"
)

func TestToError(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/tmp/x", Err: syscall.EACCES}
	cases := []struct {
		name string
		err  error
		want protocol.Error
	}{
		{"plain", errors.New("no"), protocol.Error{Code: "failed"}},
		{"coded", berth.Errorf(protocol.CodeInvalidInput, "bad %d", 7), protocol.Error{Code: "invalid_input"}},
		{"coded with a cause", berth.Errorf(protocol.CodeFailed, "no: %w", denied), protocol.Error{Code: "failed"}},
		{"path", denied, protocol.Error{Code: "system", Op: "open", Path: "/tmp/x", Errno: "EACCES"}},
		{"wrapped and marked", fmt.Errorf("cannot write: %w", berth.Writing(denied)),
			protocol.Error{Code: "system", Op: "open", Path: "/tmp/x", Errno: "EACCES", Access: "write"}},
		{"joined", errors.Join(berth.Reading(denied), io.ErrUnexpectedEOF),
			protocol.Error{Code: "system", Op: "open", Path: "/tmp/x", Errno: "EACCES", Access: "read"}},
		{"removed", &fs.PathError{Op: "remove", Path: "x", Err: syscall.EROFS},
			protocol.Error{Code: "system", Op: "unlink", Path: "x", Errno: "EROFS"}},
		{"link", &os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EXDEV},
			protocol.Error{Code: "system", Op: "rename", Path: "a", NewPath: "b", Errno: "EXDEV"}},
		{"call", os.NewSyscallError("setns", syscall.EPERM), protocol.Error{Code: "system", Op: "setns", Errno: "EPERM"}},
		{"network", &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 25},
			Err: os.NewSyscallError("connect", syscall.EACCES)},
			protocol.Error{Code: "system", Op: "connect", Path: "127.0.0.1:25", Errno: "EACCES"}},
		{"bare number", syscall.ENOSPC, protocol.Error{Code: "system", Errno: "ENOSPC"}},
		{"number without a name", syscall.Errno(4000), protocol.Error{Code: "system", Errno: "errno 4000"}},
		{"no system call", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrInvalid}, protocol.Error{Code: "failed"}},
		{"as it came", fmt.Errorf("again: %w", &protocol.Error{Code: "system", Errno: "EIO"}), protocol.Error{Code: "system", Errno: "EIO"}},
	}
	for _, c := range cases {
		c.want.Message = c.err.Error()
		if got := *berth.ToError(c.err); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if berth.Writing(nil) != nil || berth.Reading(nil) != nil {
		t.Error("nil became an error")
	}
}

// TestSystemErrorOfTheKernel takes the errors from real calls.
func TestSystemErrorOfTheKernel(t *testing.T) {
	dir := t.TempDir()
	app := berth.New("test")
	try := func(name string, f func() error) {
		berth.Export(app, name, "", func(context.Context, none) (none, error) { return none{}, f() })
	}
	missing := filepath.Join(dir, "none")
	try("open", func() error { _, err := os.Open(missing); return err })
	try("mkdir", func() error { return os.Mkdir(dir, 0o755) })
	try("remove", func() error { return os.Remove(missing) })
	try("rename", func() error { return os.Rename(missing, dir) })
	client := berthtest.Start(t, app)
	for name, want := range map[string]string{
		"open": "open " + missing + " ENOENT", "mkdir": "mkdir " + dir + " EEXIST",
		"remove": "unlink " + missing + " ENOENT", "rename": "rename " + missing + " ENOENT",
	} {
		e := wantCode(t, client.Call(t.Context(), name, none{}, nil), protocol.CodeSystem)
		if got := e.Op + " " + e.Path + " " + e.Errno; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

type shapes struct {
	Name  string            `json:"name"`
	Count int8              `json:"count,omitempty"`
	Big   int64             `json:"big,omitempty"`
	Flag  *bool             `json:"flag,omitempty"`
	List  []text            `json:"list,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
	Rate  float64           `json:"rate,omitempty"`
	Any   any               `json:"any,omitempty"`
}

func TestInput(t *testing.T) {
	app := berth.New("test")
	berth.Export(app, "take", "", func(_ context.Context, in shapes) (shapes, error) { return in, nil })
	client := berthtest.Start(t, app)
	call := func(input string) error {
		conn, err := client.Dial()
		if err != nil {
			t.Fatal(err)
		}
		_, err = protocol.Call(t.Context(), conn, protocol.Request{ID: "1", Export: "take", Input: []byte(input)}, nil)
		return err
	}
	for _, good := range []string{
		`{"name":"x"}`,
		`{"name":"","count":-128,"flag":null,"list":null,"tags":{"a":"b"},"rate":1,"any":[{"x":1}]}`,
		`{"name":"x","big":9223372036854775807,"list":[{"text":"a"}],"rate":0.5}`,
		`{"name":"first","name":"last"}`,
	} {
		if err := call(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for input, want := range map[string]string{
		`[]`:                        "input: is an array, not an object",
		`null`:                      "input: is null, not an object",
		`{}`:                        "input /name: is missing",
		`{"Name":"x"}`:              "input /name: is missing",
		`{"name":"x","NAME":"y"}`:   "input /NAME: unknown key; known are any, big, count, flag, list, name, rate, tags",
		`{"name":null}`:             "input /name: is null, not a string",
		`{"name":"x","count":128}`:  "input /count: 128 is out of range",
		`{"name":"x","count":1.5}`:  "input /count: is a number, not an integer",
		`{"name":"x","flag":"yes"}`: "input /flag: is a string, not a boolean",
		`{"name":"x","rate":"1"}`:   "input /rate: is a string, not a number",
		`{"name":"x","list":[{"text":"a"},{"text":[]}]}`: "input /list/1/text: is an array, not a string",
		`{"name":"x","list":[{"text":"a","b/c~":1}]}`:    "input /list/0/b~1c~0: unknown key; known are text",
		`{"name":"x","tags":{"a":1}}`:                    "input /tags/a: is an integer, not a string",
		`{"name":"x","big":9223372036854775808}`:         "input /big: number 9223372036854775808 does not fit",
	} {
		e := wantCode(t, call(input), protocol.CodeInvalidInput)
		if e.Message != want {
			t.Errorf("%s: got %q, want %q", input, e.Message, want)
		}
	}
	long := `{"name":"x","` + strings.Repeat("k", 1<<20) + `":1}`
	if e := wantCode(t, call(long), protocol.CodeInvalidInput); len(e.Message) > 1000 {
		t.Errorf("a long key gives %d bytes of message", len(e.Message))
	}
	if e := wantCode(t, call(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), protocol.CodeInvalidInput); e.Message == "" {
		t.Error("deep input")
	}
}

// TestLongLine: a line over the limit is refused before the app has all of it.
func TestLongLine(t *testing.T) {
	client := berthtest.Start(t, vectorApp())
	conn, err := client.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, `{"type":"call","id":"a","export":"echo","input":{"text":"`)
	// The write fails once the app has given up, long before the GiB is through.
	piece := strings.Repeat("x", 1<<20)
	n := 0
	for ; n < 1024 && err == nil; n++ {
		_, err = io.WriteString(conn, piece)
	}
	if n > 16 {
		t.Errorf("the app took %d MiB of a line", n)
	}
	m, err := protocol.NewReader(conn).Message()
	if err != nil || m.Error == nil || m.Error.Code != protocol.CodeInvalidInput || !strings.Contains(m.Error.Message, "too long") {
		t.Errorf("got %+v, %v", m.Error, err)
	}
}

func TestResultTooLarge(t *testing.T) {
	app := berth.New("test")
	berth.Export(app, "big", "", func(context.Context, none) (text, error) {
		return text{strings.Repeat("x", protocol.MaxMessage)}, nil
	})
	berth.Export(app, "odd", "", func(context.Context, none) (map[string]any, error) {
		return map[string]any{"f": func() {}}, nil
	})
	client := berthtest.Start(t, app)
	if e := wantCode(t, client.Call(t.Context(), "big", none{}, nil), protocol.CodeFailed); !strings.Contains(e.Message, "too large") {
		t.Errorf("got %q", e.Message)
	}
	wantCode(t, client.Call(t.Context(), "odd", none{}, nil), protocol.CodeInternal)
}

func TestExportsAreAnnounced(t *testing.T) {
	app := berth.New("test")
	berth.Export(app, "b", "Second.", func(_ context.Context, in text) (none, error) { return none{}, nil })
	berth.Export(app, "a", "First.", func(context.Context, none) (text, error) { return text{}, nil })
	all := app.Exports()
	if len(all) != 2 || all[0].Name != "a" || all[1].Description != "Second." {
		t.Fatalf("got %+v", all)
	}
	want := `{"type":"object","properties":{"text":{"type":"string","description":"what to give back"}},"required":["text"],"additionalProperties":false}`
	if string(all[1].Input) != want || string(all[0].Output) != want {
		t.Errorf("schema is %s, want %s", all[1].Input, want)
	}
}

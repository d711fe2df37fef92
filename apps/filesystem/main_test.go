package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/sdk/go/berthtest"
	"github.com/berthos/berth/sdk/protocol"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("BERTH_TEST_CONFINED"); dir != "" {
		os.Exit(confined(dir))
	}
	goleak.VerifyTestMain(m)
}

// start serves the app with its workspace in a temporary folder.
func start(t *testing.T) (*berthtest.Client, string) {
	t.Helper()
	dir := t.TempDir()
	return berthtest.Start(t, newApp(files{base: dir})), dir
}

type m map[string]any

// ok makes a call that must succeed.
func ok[Out any](t *testing.T, c *berthtest.Client, export string, in m, options ...berthtest.Option) Out {
	t.Helper()
	var out Out
	if err := c.Call(t.Context(), export, in, &out, options...); err != nil {
		t.Fatalf("%s %v: %v", export, in, err)
	}
	return out
}

// fails makes a call that must fail with this code, and errno if one is given.
func fails(t *testing.T, c *berthtest.Client, export string, in m, code, errno string, options ...berthtest.Option) *protocol.Error {
	t.Helper()
	err := c.Call(t.Context(), export, in, nil, options...)
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != code || e.Errno != errno {
		t.Fatalf("%s %v: got %+v (%v), want %s %s", export, in, e, err, code, errno)
	}
	return e
}

func put(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// names is what a folder holds, helper files with it.
func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range list {
		all = append(all, d.Name())
	}
	return strings.Join(all, " ")
}

func TestRunOutsideASandbox(t *testing.T) {
	t.Setenv(protocol.EnvListenFD, "")
	var said strings.Builder
	if code := run(context.Background(), &said); code != 1 || !strings.Contains(said.String(), protocol.EnvListenFD) {
		t.Errorf("exit status %d, said %q", code, said.String())
	}
}

func TestPaths(t *testing.T) {
	f := files{base: "/workspace"}
	for in, want := range map[string]string{
		"a/b": "/workspace/a/b", ".": "/workspace", "/abs": "/abs", "../x": "/workspace/../x", "a//b/": "/workspace/a//b/",
		"base64:/w==": "/workspace/\xff", "base64:L/8=": "/\xff", "./base64:x": "/workspace/./base64:x",
	} {
		if got, err := f.asked(in); err != nil || got != want {
			t.Errorf("asked(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "a\x00b", "base64:!", "base64:"} {
		if got, err := f.asked(in); err == nil {
			t.Errorf("asked(%q) = %q", in, got)
		}
	}
	for _, path := range []string{"a", "new\nline", "\xff", "base64:x", "é"} {
		if got, err := f.asked(shown("/" + path)); err != nil || got != "/"+path {
			t.Errorf("%q is shown as %q, which is asked as %q, %v", path, shown("/"+path), got, err)
		}
		if got, err := f.asked(shown(path)); err != nil || got != "/workspace/"+path {
			t.Errorf("%q is shown as %q, which is asked as %q, %v", path, shown(path), got, err)
		}
	}
}

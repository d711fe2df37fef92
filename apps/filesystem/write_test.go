package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/sdk/go/berthtest"
)

func TestWriteFile(t *testing.T) {
	c, dir := start(t)
	if out := ok[writeOut](t, c, "write_file", m{"path": "a", "content": "one"}); !out.Created || out.Bytes != 3 || out.Path != dir+"/a" {
		t.Errorf("got %+v", out)
	}
	if err := os.Chmod(filepath.Join(dir, "a"), 0o751); err != nil {
		t.Fatal(err)
	}
	if out := ok[writeOut](t, c, "write_file", m{"path": "a", "content": "two"}); out.Created || get(t, dir, "a") != "two" {
		t.Errorf("got %+v, content %q", out, get(t, dir, "a"))
	}
	if info, _ := os.Stat(filepath.Join(dir, "a")); info.Mode() != 0o751 {
		t.Errorf("mode is %v", info.Mode())
	}
	ok[writeOut](t, c, "write_file", m{"path": "a", "content": "+", "append": true})
	if got := get(t, dir, "a"); got != "two+" {
		t.Errorf("appended: %q", got)
	}
	ok[writeOut](t, c, "write_file", m{"path": "a", "content": "", "mode": "0600"})
	if info, _ := os.Stat(filepath.Join(dir, "a")); info.Mode() != 0o600 || info.Size() != 0 {
		t.Errorf("mode is %v, size %d", info.Mode(), info.Size())
	}
	ok[writeOut](t, c, "write_file", m{"path": "x/y/z", "content": "deep", "parents": true})
	ok[writeOut](t, c, "write_file", m{"path": "/dev/null", "content": "gone"})
	if got := names(t, dir); got != "a x" {
		t.Errorf("the folder holds %q", got)
	}
}

func TestWriteFileFails(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "file", "old")
	e := fails(t, c, "write_file", m{"path": "none/x", "content": "x"}, "system", "ENOENT")
	if e.Op != "open" || e.Path != dir+"/none/x" || e.Access != "write" {
		t.Errorf("got %+v", e)
	}
	if e := fails(t, c, "write_file", m{"path": ".", "content": "x"}, "system", "EISDIR"); e.Path != dir {
		t.Errorf("got %+v", e)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails(t, c, "write_file", m{"path": "pipe", "content": "x"}, "system", "ENXIO")
	fails(t, c, "write_file", m{"path": "file", "content": "x", "new_only": true}, "system", "EEXIST")
	fails(t, c, "write_file", m{"path": "file/x", "content": "x", "parents": true}, "system", "ENOTDIR")
	fails(t, c, "write_file", m{"path": "file"}, "invalid_input", "")
	fails(t, c, "write_file", m{"path": "file", "content": "x", "mode": "4755"}, "invalid_input", "")
	fails(t, c, "write_file", m{"path": "file", "content": "x", "append": true, "new_only": true}, "invalid_input", "")
	fails(t, c, "write_file", m{"path": "file", "content": "x"}, "invalid_input", "", berthtest.WithStream(nil, nil))
	fails(t, c, "write_binary_file", m{"path": "file", "content_base64": "!"}, "invalid_input", "")
	if got := names(t, dir); get(t, dir, "file") != "old" || got != "file pipe" {
		t.Errorf("the folder holds %q, the file %q", got, get(t, dir, "file"))
	}
}

func TestWriteBinaryFile(t *testing.T) {
	c, dir := start(t)
	out := ok[writeOut](t, c, "write_binary_file", m{"path": "b", "content_base64": "AP/+"})
	if got := get(t, dir, "b"); got != "\x00\xff\xfe" || out.Bytes != 3 {
		t.Errorf("got %q, %+v", got, out)
	}
}

// TestWriteKeepsOtherNames: what a rename would break is written in place.
func TestWriteKeepsOtherNames(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "old")
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	ok[writeOut](t, c, "write_file", m{"path": "a", "content": "new"})
	if got := get(t, dir, "b"); got != "new" {
		t.Errorf("the other name of the file has %q", got)
	}
}

// TestReplaceIsAtomic: who has the old file open keeps it.
func TestReplaceIsAtomic(t *testing.T) {
	c, dir := start(t)
	old, err := os.Open(put(t, dir, "a", "old"))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	ok[writeOut](t, c, "write_file", m{"path": "a", "content": "new content"})
	if content, err := io.ReadAll(old); err != nil || string(content) != "old" {
		t.Errorf("the open file has %q, %v", content, err)
	}
}

// TestFailedWrite goes through every way of writing with a source that breaks.
func TestFailedWrite(t *testing.T) {
	cause := errors.New("source broke")
	for name, prepare := range map[string]func(t *testing.T, dir string) writing{
		"new":     func(t *testing.T, dir string) writing { return writing{path: dir + "/new"} },
		"replace": func(t *testing.T, dir string) writing { return writing{path: put(t, dir, "old", "old")} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := prepare(t, dir)
			before := names(t, dir)
			w.ctx = t.Context()
			w.fill = func(dst io.Writer) (int64, error) {
				n, _ := dst.Write([]byte("half"))
				return int64(n), cause
			}
			if _, _, err := w.run(); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
			if got := names(t, dir); got != before || name == "replace" && get(t, dir, "old") != "old" {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

// TestFullDisk: /dev/full is the device whose writes fail with ENOSPC.
func TestFullDisk(t *testing.T) {
	c, _ := start(t)
	e := fails(t, c, "write_file", m{"path": "/dev/full", "content": "x"}, "system", "ENOSPC")
	if e.Op != "write" || e.Path != "/dev/full" {
		t.Errorf("got %+v", e)
	}
}

// zeros makes content of any size without holding it.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestStreams moves 64 MiB in and out, byte-exact and in constant memory.
func TestStreams(t *testing.T) {
	c, dir := start(t)
	const size = 64<<20 + 13
	seed := make([]byte, 1<<20)
	rand.Read(seed)
	source := func() io.Reader {
		parts := []io.Reader{}
		for range 64 {
			parts = append(parts, bytes.NewReader(seed))
		}
		return io.MultiReader(append(parts, io.LimitReader(zeros{}, 13))...)
	}
	sum := sha256.New()
	io.Copy(sum, source())
	want := sum.Sum(nil)

	before := heap()
	out := ok[writeOut](t, c, "write_binary_file", m{"path": "big", "size": size}, berthtest.WithStream(source(), nil))
	if out.Bytes != size {
		t.Errorf("%d bytes were written", out.Bytes)
	}
	got := sha256.New()
	read := ok[readBinaryOut](t, c, "read_binary_file", m{"path": "big"}, berthtest.WithStream(nil, got))
	if read.Bytes != size || read.Size != size || read.Truncated || !bytes.Equal(got.Sum(nil), want) {
		t.Errorf("what came back differs: %+v", read)
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	var part bytes.Buffer
	read = ok[readBinaryOut](t, c, "read_binary_file", m{"path": "big", "offset": size - 14, "limit": 4}, berthtest.WithStream(nil, &part))
	if part.Len() != 4 || part.Bytes()[0] != seed[len(seed)-1] || part.Bytes()[1] != 0 || read.NextOffset != size-10 {
		t.Errorf("part: %x, %+v", part.Bytes(), read)
	}
	var text bytes.Buffer
	ok[readOut](t, c, "read_file", m{"path": "big"}, berthtest.WithStream(nil, &text))
	if text.Len() != size {
		t.Errorf("read_file sent %d bytes", text.Len())
	}
	if got := names(t, dir); got != "big" {
		t.Errorf("left behind: %q", got)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

// TestShortStream: fewer bytes than announced change nothing.
func TestShortStream(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "old")
	for _, path := range []string{"a", "new"} {
		in := m{"path": path, "size": 10}
		e := fails(t, c, "write_file", in, "invalid_input", "", berthtest.WithStream(strings.NewReader("short"), nil))
		if !strings.Contains(e.Message, "5 bytes came") {
			t.Errorf("got %q", e.Message)
		}
	}
	if got := names(t, dir); got != "a" || get(t, dir, "a") != "old" {
		t.Errorf("the folder holds %q", got)
	}
}

// TestCanceledStream: a caller that goes away in the middle changes nothing. Only
// the size tells the app so for sure: what it sees first may be the stream's end.
func TestCanceledStream(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "old")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		w.Write([]byte("half"))
		cancel()
		w.Close()
	}()
	if err := c.Call(ctx, "write_file", m{"path": "a", "size": 8}, nil, berthtest.WithStream(r, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := c.Stop(); err != nil { // the app has ended the call
		t.Error(err)
	}
	if got := names(t, dir); got != "a" || get(t, dir, "a") != "old" {
		t.Errorf("the folder holds %q, the file %q", got, get(t, dir, "a"))
	}
}

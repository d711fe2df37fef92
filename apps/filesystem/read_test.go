package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/sdk/go/berthtest"
)

func TestReadFile(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "sub/a.txt", "one\ntwo\nthree\nfour\nfive")
	for _, v := range []struct {
		in      m
		content string
		more    bool
		next    int64
	}{
		{m{}, "one\ntwo\nthree\nfour\nfive", false, 0},
		{m{"head": 2}, "one\ntwo\n", true, 2},
		{m{"head": 5}, "one\ntwo\nthree\nfour\nfive", false, 0},
		{m{"head": 50}, "one\ntwo\nthree\nfour\nfive", false, 0},
		{m{"tail": 2}, "four\nfive", true, 0},
		{m{"tail": 5}, "one\ntwo\nthree\nfour\nfive", false, 0},
		{m{"offset": 3}, "four\nfive", false, 0},
		{m{"offset": 1, "limit": 2}, "two\nthree\n", true, 3},
		{m{"offset": 99}, "", false, 0},
	} {
		v.in["path"] = "sub/a.txt"
		out := ok[readOut](t, c, "read_file", v.in)
		if out.Content != v.content || out.Truncated != v.more || out.NextOffset != v.next || out.Size != 23 || (out.Notice != "") != v.more {
			t.Errorf("%v: got %+v", v.in, out)
		}
		if int(out.Bytes) != len(v.content) || out.Lines != countLines([]byte(v.content)) {
			t.Errorf("%v: counts are wrong: %+v", v.in, out)
		}
	}
	if out := ok[readOut](t, c, "read_file", m{"path": filepath.Join(dir, "sub/a.txt")}); out.Path != dir+"/sub/a.txt" {
		t.Errorf("absolute path: %q", out.Path)
	}
	put(t, dir, "empty", "")
	if out := ok[readOut](t, c, "read_file", m{"path": "empty", "tail": 3}); out.Content != "" || out.Truncated || out.Lines != 0 {
		t.Errorf("empty file: %+v", out)
	}
	if out := ok[readOut](t, c, "read_file", m{"path": "/proc/self/status", "tail": 1}); out.Lines != 1 || !out.Truncated {
		t.Errorf("file of /proc: %+v", out)
	}
}

func TestReadFileFails(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "bin", "text\xff\xfe")
	put(t, dir, "file", "x")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := fails(t, c, "read_file", m{"path": "none"}, "system", "ENOENT")
	if e.Op != "open" || e.Path != dir+"/none" || e.Access != "read" {
		t.Errorf("got %+v", e)
	}
	fails(t, c, "read_file", m{"path": "file/x"}, "system", "ENOTDIR")
	if e := fails(t, c, "read_file", m{"path": "."}, "system", "EISDIR"); e.Op != "read" || e.Path != dir {
		t.Errorf("got %+v", e)
	}
	if e := fails(t, c, "read_file", m{"path": "bin"}, "failed", ""); !strings.Contains(e.Message, "read_binary_file") || !strings.Contains(e.Message, "byte 4") {
		t.Errorf("got %q", e.Message)
	}
	if e := fails(t, c, "read_file", m{"path": "pipe"}, "failed", ""); !strings.Contains(e.Message, "not a regular file") {
		t.Errorf("got %q", e.Message)
	}
	fails(t, c, "read_file", m{"path": "file", "head": 1, "tail": 1}, "invalid_input", "")
	fails(t, c, "read_file", m{"path": "file", "offset": -1}, "invalid_input", "")
	fails(t, c, "read_file", m{"path": ""}, "invalid_input", "")
	fails(t, c, "read_file", m{"path": "file", "head": 1}, "invalid_input", "", berthtest.WithStream(nil, nil))
}

// TestReadLongFile: an answer is cut at a line's end, says so, and the offset it
// names leads through the whole file.
func TestReadLongFile(t *testing.T) {
	c, dir := start(t)
	line := strings.Repeat("ä", 500) + "\n"
	content := strings.Repeat(line, 3000)
	put(t, dir, "long", content)
	var all strings.Builder
	for offset, rounds := int64(0), 0; ; rounds++ {
		out := ok[readOut](t, c, "read_file", m{"path": "long", "offset": offset})
		if out.Bytes > maxText || !strings.HasSuffix(out.Content, "\n") || rounds > 10 {
			t.Fatalf("%d bytes, round %d", out.Bytes, rounds)
		}
		all.WriteString(out.Content)
		if !out.Truncated {
			break
		}
		offset = out.NextOffset
	}
	if all.String() != content {
		t.Error("the pieces are not the file")
	}
	out := ok[readOut](t, c, "read_file", m{"path": "long", "tail": 2999})
	if !out.Truncated || out.Bytes > maxText || !strings.HasSuffix(content, out.Content) || !strings.HasPrefix(out.Content, line) {
		t.Errorf("tail: %d bytes, truncated %v", out.Bytes, out.Truncated)
	}
	put(t, dir, "one-line", "x"+strings.Repeat("ä", maxText))
	out = ok[readOut](t, c, "read_file", m{"path": "one-line"})
	if !out.Truncated || out.NextOffset != 0 || out.Bytes != maxText-1+maxText%2 || !strings.Contains(out.Notice, "middle of a line") {
		t.Errorf("one line: %d bytes, %q", out.Bytes, out.Notice)
	}
	out = ok[readOut](t, c, "read_file", m{"path": "one-line", "tail": 1})
	if !out.Truncated || out.Bytes != maxText || !strings.HasPrefix(out.Content, "ä") {
		t.Errorf("tail of one line: %d bytes", out.Bytes)
	}
}

func TestReadBinaryFile(t *testing.T) {
	c, dir := start(t)
	content := make([]byte, maxBinary+1000)
	rand.Read(content)
	put(t, dir, "a.PNG", string(content))
	var all []byte
	offset := int64(0)
	for {
		out := ok[readBinaryOut](t, c, "read_binary_file", m{"path": "a.PNG", "offset": offset})
		raw, err := base64.StdEncoding.DecodeString(out.ContentBase64)
		if err != nil || out.Size != int64(len(content)) || out.MediaType != "image/png" || out.Bytes != int64(len(raw)) {
			t.Fatalf("%+v, %v", out, err)
		}
		all = append(all, raw...)
		if !out.Truncated {
			break
		}
		offset = out.NextOffset
	}
	if !bytes.Equal(all, content) {
		t.Error("the pieces are not the file")
	}
	out := ok[readBinaryOut](t, c, "read_binary_file", m{"path": "a.PNG", "offset": 5, "limit": 3})
	if raw, _ := base64.StdEncoding.DecodeString(out.ContentBase64); !bytes.Equal(raw, content[5:8]) || out.NextOffset != 8 {
		t.Errorf("part: %+v", out)
	}
	if out := ok[readBinaryOut](t, c, "read_binary_file", m{"path": "a.PNG", "offset": 1 << 40}); out.Bytes != 0 || out.Truncated {
		t.Errorf("behind the end: %+v", out)
	}
	fails(t, c, "read_binary_file", m{"path": "none"}, "system", "ENOENT")
	fails(t, c, "read_binary_file", m{"path": "."}, "system", "EISDIR")
	fails(t, c, "read_binary_file", m{"path": "a.PNG", "limit": -1}, "invalid_input", "")
}

func TestReadMultipleFiles(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "A")
	put(t, dir, "big", strings.Repeat("x\n", maxText/2))
	put(t, dir, "b", "B")
	out := ok[readManyOut](t, c, "read_multiple_files", m{"paths": []string{"a", "none", "big", "b"}})
	if len(out.Files) != 4 || out.Files[0].File.Content != "A" || out.Files[0].Error != nil {
		t.Fatalf("got %+v", out)
	}
	if e := out.Files[1].Error; e == nil || e.Errno != "ENOENT" || e.Access != "read" || out.Files[1].File != nil {
		t.Errorf("missing file: %+v", out.Files[1])
	}
	if f := out.Files[2].File; f == nil || !f.Truncated || f.Bytes != maxText-2 {
		t.Errorf("big file: %+v", out.Files[2].Error)
	}
	if f := out.Files[3].File; f == nil || f.Content != "B" {
		t.Errorf("last file, for which one byte is left: %+v", out.Files[3])
	}
	fails(t, c, "read_multiple_files", m{"paths": []string{}}, "invalid_input", "")
	fails(t, c, "read_multiple_files", m{"paths": make([]string, maxFiles+1)}, "invalid_input", "")
}

// TestSymlinks: the kernel's behaviour, nothing of our own.
func TestSymlinks(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "target", "old")
	for name, to := range map[string]string{"link": "target", "dangling": "new", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out := ok[readOut](t, c, "read_file", m{"path": "link"}); out.Content != "old" {
		t.Errorf("got %q", out.Content)
	}
	ok[writeOut](t, c, "write_file", m{"path": "link", "content": "changed"})
	if info, err := os.Lstat(filepath.Join(dir, "link")); err != nil || info.Mode()&os.ModeSymlink == 0 || get(t, dir, "target") != "changed" {
		t.Errorf("writing through a link: %v, target has %q", err, get(t, dir, "target"))
	}
	ok[writeOut](t, c, "write_file", m{"path": "dangling", "content": "x"})
	if get(t, dir, "new") != "x" {
		t.Error("writing through a dangling link")
	}
	fails(t, c, "read_file", m{"path": "loop"}, "system", "ELOOP")
	fails(t, c, "write_file", m{"path": "loop", "content": "x"}, "system", "ELOOP")
	ok[deleteOut](t, c, "delete_file", m{"path": "link"})
	if get(t, dir, "target") != "changed" {
		t.Error("deleting a link deleted its target")
	}
}

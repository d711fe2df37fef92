package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestListDirectory(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "b", "12345")
	put(t, dir, "d/x", "")
	put(t, dir, "a", "1")
	if err := os.Symlink("a", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(dir, "b"), old, old); err != nil {
		t.Fatal(err)
	}
	list := func(in m) string {
		out := ok[listOut](t, c, "list_directory", in)
		var all []string
		for _, e := range out.Entries {
			all = append(all, e.Name+":"+e.Type)
		}
		return strings.Join(all, " ")
	}
	if got := list(m{}); got != "a:file b:file d:directory l:symlink p:other" {
		t.Errorf("got %s", got)
	}
	if got := list(m{"path": ".", "sizes": true, "sort": "size"}); !strings.HasPrefix(got, "b:file a:file ") {
		t.Errorf("by size: %s", got)
	}
	if got := list(m{"sizes": true, "sort": "modified"}); !strings.HasSuffix(got, " b:file") {
		t.Errorf("by time: %s", got)
	}
	out := ok[listOut](t, c, "list_directory", m{"sizes": true})
	if b := out.Entries[1]; b.Size == nil || *b.Size != 5 || b.Modified != "2020-01-02T03:04:05Z" || out.Entries[2].Size != nil {
		t.Errorf("got %+v", out.Entries)
	}
	out = ok[listOut](t, c, "list_directory", m{"limit": 2})
	if len(out.Entries) != 2 || !out.Truncated || !strings.Contains(out.Notice, "after 2 entries") {
		t.Errorf("cut: %+v", out)
	}
	if out := ok[listOut](t, c, "list_directory", m{"limit": 5}); out.Truncated || out.Notice != "" {
		t.Errorf("exactly the limit: %+v", out)
	}
	fails(t, c, "list_directory", m{"path": "a"}, "system", "ENOTDIR")
	if e := fails(t, c, "list_directory", m{"path": "none"}, "system", "ENOENT"); e.Op != "open" || e.Path != dir+"/none" {
		t.Errorf("got %+v", e)
	}
	fails(t, c, "list_directory", m{"sort": "colour"}, "invalid_input", "")
	fails(t, c, "list_directory", m{"sort": "size"}, "invalid_input", "")
	fails(t, c, "list_directory", m{"limit": 10001}, "invalid_input", "")
}

// TestOddNames: what is listed can be asked for, whatever bytes a name has.
func TestOddNames(t *testing.T) {
	c, dir := start(t)
	odd := []string{"new\nline", "\xff\xfe", "base64:x", "esc\x1b[31m", "quote\"\\", strings.Repeat("n", 255), "\u2028"}
	for _, name := range odd {
		put(t, dir, name, "in "+name)
	}
	out := ok[listOut](t, c, "list_directory", m{})
	if len(out.Entries) != len(odd) {
		t.Fatalf("got %+v", out.Entries)
	}
	seen := map[string]bool{}
	for _, e := range out.Entries {
		raw := ok[readBinaryOut](t, c, "read_binary_file", m{"path": e.Name})
		info := ok[infoOut](t, c, "get_file_info", m{"path": raw.Path})
		seen[fmt.Sprint(info.Size, raw.ContentBase64)] = true
	}
	if len(seen) != len(odd) {
		t.Errorf("%d of %d files were found by their listed names", len(seen), len(odd))
	}
	found := ok[searchOut](t, c, "search_files", m{"pattern": "*"})
	for _, path := range found.Matches {
		ok[infoOut](t, c, "get_file_info", m{"path": path})
	}
	ok[deleteOut](t, c, "delete_file", m{"path": "base64://4="})
	if _, err := os.Lstat(filepath.Join(dir, "\xff\xfe")); !os.IsNotExist(err) {
		t.Errorf("deleting by an encoded name: %v", err)
	}
}

func TestDirectoryTree(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a/b/c", "")
	put(t, dir, "a/x", "")
	put(t, dir, "node_modules/y", "")
	put(t, dir, "z", "")
	if err := os.Symlink("..", filepath.Join(dir, "a/up")); err != nil {
		t.Fatal(err)
	}
	tree := func(in m) (string, treeOut) {
		out := ok[treeOut](t, c, "directory_tree", in)
		b, err := json.Marshal(out.Entries)
		if err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer(`"name":`, "", `"type":`, "", `"entries":`, "", `"truncated":true`, "cut", `"`, "").Replace(string(b)), out
	}
	// Keys come sorted: entries, name, truncated, type.
	want := "[{[{[{c,file}],b,directory},{up,symlink},{x,file}],a,directory},{z,file}]"
	if got, out := tree(m{"excludes": []string{"node_modules"}}); got != want || out.Count != 6 || out.Truncated {
		t.Errorf("got %s, %d entries", got, out.Count)
	}
	if got, _ := tree(m{"path": "a", "excludes": []string{"b/*"}}); got != "[{b,directory},{up,symlink},{x,file}]" {
		t.Errorf("got %s", got)
	}
	if got, out := tree(m{"depth": 1}); got != "[{a,cut,directory},{node_modules,cut,directory},{z,file}]" || !out.Truncated {
		t.Errorf("got %s", got)
	}
	if _, out := tree(m{"limit": 4}); out.Count != 4 || !out.Truncated || !strings.Contains(out.Notice, "4 entries") {
		t.Errorf("got %+v", out)
	}
	put(t, dir, "empty/x", "")
	if got, _ := tree(m{"path": "empty", "excludes": []string{"x"}}); got != "[]" {
		t.Errorf("got %s", got)
	}
	fails(t, c, "directory_tree", m{"path": "z"}, "system", "ENOTDIR")
	fails(t, c, "directory_tree", m{"excludes": []string{"["}}, "invalid_input", "")
	fails(t, c, "directory_tree", m{"depth": -1}, "invalid_input", "")
}

// TestDeepTree: 300 levels are cut at 64, and a search goes as far as the kernel.
func TestDeepTree(t *testing.T) {
	c, dir := start(t)
	put(t, dir, strings.Repeat("d/", 300)+"leaf", "")
	out := ok[treeOut](t, c, "directory_tree", m{})
	if !out.Truncated || out.Count != maxDepth {
		t.Errorf("%d levels, truncated %v", out.Count, out.Truncated)
	}
	found := ok[searchOut](t, c, "search_files", m{"pattern": "leaf"})
	if len(found.Matches) != 1 || len(found.Matches[0]) != 604 {
		t.Errorf("got %+v", found)
	}
}

func TestSearchFiles(t *testing.T) {
	c, dir := start(t)
	for _, name := range []string{"a.go", "src/b.go", "src/deep/c.ts", "src/deep/d.tsx", "vendor/e.go", ".hidden/f.go"} {
		put(t, dir, name, "")
	}
	if err := os.Symlink("src", filepath.Join(dir, "link.go")); err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		in   m
		want string
	}{
		{m{"pattern": "*.go"}, ".hidden/f.go a.go link.go src/b.go vendor/e.go"},
		{m{"pattern": "./*.go"}, "a.go link.go"},
		{m{"pattern": "src/**/*.{ts,tsx}"}, "src/deep/c.ts src/deep/d.tsx"},
		{m{"pattern": "**/deep/"}, "src/deep"},
		{m{"pattern": "*.go", "excludes": []string{"vendor", ".*"}, "type": "file"}, "a.go src/b.go"},
		{m{"pattern": "*", "type": "symlink"}, "link.go"},
		{m{"pattern": "d*", "path": "src"}, "deep deep/d.tsx"},
		{m{"pattern": "nothing"}, ""},
	} {
		out := ok[searchOut](t, c, "search_files", v.in)
		if got := strings.Join(out.Matches, " "); got != v.want || out.Truncated {
			t.Errorf("%v: got %q, want %q", v.in, got, v.want)
		}
	}
	out := ok[searchOut](t, c, "search_files", m{"pattern": "*.go", "limit": 2})
	if len(out.Matches) != 2 || !out.Truncated || !strings.Contains(out.Notice, "after 2 matches") {
		t.Errorf("got %+v", out)
	}
	fails(t, c, "search_files", m{"pattern": "*", "path": "none"}, "system", "ENOENT")
	for _, pattern := range []string{"", "[", strings.Repeat("x", maxPattern+1), strings.Repeat("{a,b}", 9), strings.Repeat("**/", 9)} {
		fails(t, c, "search_files", m{"pattern": pattern}, "invalid_input", "")
	}
}

func TestGetFileInfo(t *testing.T) {
	c, dir := start(t)
	path := put(t, dir, "a", "123")
	if err := os.Chmod(path, 0o640|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	out := ok[infoOut](t, c, "get_file_info", m{"path": "a"})
	if out.Type != "file" || out.Size != 3 || out.Mode != "4640" || out.Links != 1 || int(out.UID) != os.Getuid() || out.Path != path {
		t.Errorf("got %+v", out)
	}
	if _, err := time.Parse(time.RFC3339Nano, out.Modified); err != nil {
		t.Error(err)
	}
	if out := ok[infoOut](t, c, "get_file_info", m{"path": "l"}); out.Type != "symlink" || out.LinkTarget != "a" {
		t.Errorf("got %+v", out)
	}
	if out := ok[infoOut](t, c, "get_file_info", m{"path": "."}); out.Type != "directory" {
		t.Errorf("got %+v", out)
	}
	fails(t, c, "get_file_info", m{"path": "none"}, "system", "ENOENT")
	fails(t, c, "get_file_info", m{"path": strings.Repeat("n", 256)}, "system", "ENAMETOOLONG")
}

func TestListAllowedDirectories(t *testing.T) {
	c, dir := start(t)
	if out := ok[allowedOut](t, c, "list_allowed_directories", m{}); out.Base != dir {
		t.Errorf("got %+v", out)
	}
	const table = `21 1 0:20 / / ro,relatime - tmpfs tmpfs rw
22 21 0:21 / /proc rw - proc proc rw
23 21 0:22 / /workspace rw,nosuid,nodev - 9p share rw,trans=fd
24 23 0:22 /.git/hooks /workspace/.git/hooks ro,nosuid - 9p share rw
25 21 0:22 / /home/a\040b\134c rw - 9p share rw
26 21 0:23 / /app ro - erofs /dev/loop0 ro
27 21 0:24 / /scratch rw - tmpfs tmpfs rw
28 21 0:25 / /disk rw - ext4 /dev/x ro
29 21 0:26 / /dev/null rw - devtmpfs devtmpfs rw
30 23 0:27 / /workspace ro - tmpfs over rw
`
	mounts, err := parseMounts(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{/app true} {/disk true} {/home/a b\c false} {/scratch false} {/workspace true} {/workspace/.git/hooks true}]`
	if got := fmt.Sprint(mounts); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

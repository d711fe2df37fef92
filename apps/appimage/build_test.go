package appimage

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthos/berth/tools/testenv"
)

// goldenDigest is that of plantTree; another value means that every app image
// changes its digest, and with it every policy.
const goldenDigest = "sha256:518253511f66e5187ea077762fa153e09c41e8da8a6e718d5387cdc5842b2c33"

func write(t *testing.T, dir, name, content string, mode fs.FileMode) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p, mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, dir, name, target string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// plantTree has what needs care: order across folders and files of similar
// names, long and non-ASCII names, an empty folder, an empty file, links.
func plantTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "run", "#!/bin/sh\n", 0o755)
	write(t, dir, "a/x", "x", 0o644)
	write(t, dir, "a.b", "sorted after the folder a", 0o600)
	write(t, dir, "a/empty", "", 0o644)
	write(t, dir, "näme\nwith newline", "é", 0o644)
	write(t, dir, "deep/"+strings.Repeat("folder/", 40)+strings.Repeat("n", 200), "long", 0o644)
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	link(t, dir, "a/up", "../run")
	link(t, dir, "dangling", "not/there")
	link(t, dir, "a/top", "..")
	return dir
}

func build(t *testing.T, dir string) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	digest, size, err := Build(&b, dir)
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(b.Len()) {
		t.Fatalf("Build said %d bytes and wrote %d", size, b.Len())
	}
	return digest, b.Bytes()
}

func TestBuildIsDeterministic(t *testing.T) {
	one, two := plantTree(t), plantTree(t)
	// What must not matter: times, setuid, group and other bits.
	old := time.Unix(1, 2)
	for _, name := range []string{"run", "a"} {
		if err := os.Chtimes(filepath.Join(two, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]fs.FileMode{"run": 0o711 | fs.ModeSetuid, "a": 0o777 | fs.ModeSticky} {
		if err := os.Chmod(filepath.Join(two, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	digestOne, _ := build(t, one)
	digestTwo, image := build(t, two)
	if digestOne != digestTwo {
		t.Fatalf("equal trees give %s and %s", digestOne, digestTwo)
	}
	if digestOne != goldenDigest {
		t.Errorf("digest is %s, recorded is %s", digestOne, goldenDigest)
	}
	if bytes.Contains(image, []byte("root")) {
		t.Error("the image names an owner")
	}
	write(t, two, "a/x", "y", 0o644)
	if changed, _ := build(t, two); changed == digestOne {
		t.Error("another content gives the same digest")
	}
}

func TestBuildRefuses(t *testing.T) {
	cases := []struct {
		name  string
		plant func(t *testing.T, dir string)
		want  string
	}{
		{"absolute link", func(t *testing.T, d string) { link(t, d, "l", "/etc/passwd") }, `"/etc/passwd"`},
		{"link outside", func(t *testing.T, d string) { link(t, d, "l", "../x") }, `"../x"`},
		{"link outside from a folder", func(t *testing.T, d string) {
			write(t, d, "d/f", "", 0o644)
			link(t, d, "d/l", "../../x")
		}, `"../../x"`},
		{"link outside through a link", func(t *testing.T, d string) {
			link(t, d, "here", ".")
			link(t, d, "l", "here/../x")
		}, `"here/../x"`},
		{"pipe", func(t *testing.T, d string) {
			if err := syscall.Mkfifo(filepath.Join(d, "p"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "p is neither"},
		{"socket", func(t *testing.T, d string) {
			l, err := net.Listen("unix", filepath.Join(d, "s"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "s is neither"},
		{"name that is not UTF-8", func(t *testing.T, d string) { write(t, d, "\xff", "", 0o644) }, `"\xff"`},
		{"larger than an image may be", func(t *testing.T, d string) {
			write(t, d, "big", "", 0o644)
			if err := os.Truncate(filepath.Join(d, "big"), MaxBytes+1); err != nil {
				t.Fatal(err)
			}
		}, "too large"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "ok", "control", 0o644)
			build(t, dir) // the same folder without the fault is fine
			c.plant(t, dir)
			digest, _, err := Build(&bytes.Buffer{}, dir)
			if err == nil || digest != "" || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Fatalf("got %q, %v; want an error with %s", digest, err, c.want)
			}
		})
	}
}

func TestBuildDevice(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o644, 1<<8|3); err != nil {
		testenv.Skipf(t, "cannot make a device here: %v", err)
	}
	if _, _, err := Build(&bytes.Buffer{}, dir); err == nil {
		t.Fatal("a device was put into an image")
	}
}

func TestBuildMissingFolder(t *testing.T) {
	_, _, err := Build(&bytes.Buffer{}, filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.HasPrefix(err.Error(), "cannot build app image of ") {
		t.Fatalf("got %v", err)
	}
}

func TestBuildWriteFails(t *testing.T) {
	r, w := net.Pipe()
	r.Close()
	if _, _, err := Build(w, plantTree(t)); err == nil {
		t.Fatal("a failed write went unnoticed")
	}
}

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berthos/berth/tools/testenv"
)

func TestCreateDirectory(t *testing.T) {
	c, dir := start(t)
	if out := ok[createOut](t, c, "create_directory", m{"path": "a/b/c"}); !out.Created || out.Path != dir+"/a/b/c" {
		t.Errorf("got %+v", out)
	}
	if out := ok[createOut](t, c, "create_directory", m{"path": "a/b/c"}); out.Created {
		t.Errorf("got %+v", out)
	}
	put(t, dir, "file", "")
	e := fails(t, c, "create_directory", m{"path": "file"}, "system", "ENOTDIR")
	if e.Op != "mkdir" || e.Path != dir+"/file" || e.Access != "write" {
		t.Errorf("got %+v", e)
	}
	fails(t, c, "create_directory", m{"path": "file/x"}, "system", "ENOTDIR")
}

func TestDeleteFile(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "")
	put(t, dir, "d/x/y", "")
	ok[deleteOut](t, c, "delete_file", m{"path": "a"})
	e := fails(t, c, "delete_file", m{"path": "a"}, "system", "ENOENT")
	if e.Op != "unlink" || e.Path != dir+"/a" || e.Access != "write" {
		t.Errorf("got %+v", e)
	}
	fails(t, c, "delete_file", m{"path": "d"}, "system", "ENOTEMPTY")
	fails(t, c, "delete_file", m{"path": "none", "recursive": true}, "system", "ENOENT")
	if got := names(t, dir); got != "d" {
		t.Errorf("the folder holds %q", got)
	}
	ok[deleteOut](t, c, "delete_file", m{"path": "d", "recursive": true})
	if got := names(t, dir); got != "" {
		t.Errorf("the folder holds %q", got)
	}
}

// TestDeleteMount: a mount, such as the workspace itself, is refused by the
// kernel before anything in it is deleted.
func TestDeleteMount(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "disk/x", "hidden by the mount")
	if err := syscall.Mount("none", filepath.Join(dir, "disk"), "tmpfs", 0, ""); err != nil {
		testenv.Skipf(t, "cannot mount here: %v", err)
	}
	defer syscall.Unmount(filepath.Join(dir, "disk"), 0)
	put(t, dir, "disk/keep", "K")
	fails(t, c, "delete_file", m{"path": "disk", "recursive": true}, "system", "EBUSY")
	if got := get(t, dir, "disk/keep"); got != "K" {
		t.Errorf("got %q", got)
	}
	ok[deleteOut](t, c, "delete_file", m{"path": "disk/keep", "recursive": true}) // the control
}

func TestMoveFile(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "A")
	put(t, dir, "b", "B")
	put(t, dir, "d/x", "X")
	ok[moveOut](t, c, "move_file", m{"source": "a", "destination": "d/a"})
	if got := get(t, dir, "d/a"); got != "A" {
		t.Errorf("got %q", got)
	}
	e := fails(t, c, "move_file", m{"source": "b", "destination": "d/a"}, "system", "EEXIST")
	if e.Op != "rename" || e.Path != dir+"/b" || e.NewPath != dir+"/d/a" || e.Access != "write" {
		t.Errorf("got %+v", e)
	}
	if get(t, dir, "d/a") != "A" || get(t, dir, "b") != "B" {
		t.Error("a refused move changed something")
	}
	ok[moveOut](t, c, "move_file", m{"source": "b", "destination": "d/a", "overwrite": true})
	if got := get(t, dir, "d/a"); got != "B" {
		t.Errorf("got %q", got)
	}
	ok[moveOut](t, c, "move_file", m{"source": "d", "destination": "e"})
	fails(t, c, "move_file", m{"source": "e", "destination": "e/inside"}, "system", "EINVAL")
	fails(t, c, "move_file", m{"source": "none", "destination": "x"}, "system", "ENOENT")
	fails(t, c, "move_file", m{"source": "e", "destination": "none/x"}, "system", "ENOENT")
	if got := names(t, dir); got != "e" {
		t.Errorf("the folder holds %q", got)
	}
}

// otherMount gives a folder on another file system than the test's own.
func otherMount(t *testing.T, dir string) string {
	t.Helper()
	for _, place := range []string{"/dev/shm", "/run", "/var/tmp"} {
		other, err := os.MkdirTemp(place, "berth")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(other) })
		probe := put(t, dir, "probe", "")
		err = os.Rename(probe, filepath.Join(other, "probe"))
		os.Remove(probe)
		if errors.Is(err, syscall.EXDEV) {
			return other
		}
	}
	t.Skip("no second file system to write to")
	return ""
}

func TestMoveBetweenMounts(t *testing.T) {
	c, dir := start(t)
	other := otherMount(t, dir)
	path := put(t, dir, "a", "A")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	out := ok[moveOut](t, c, "move_file", m{"source": "a", "destination": other + "/a"})
	info, err := os.Stat(other + "/a")
	if err != nil || !out.Copied || info.Mode() != 0o755 || get(t, other, "a") != "A" || names(t, dir) != "" {
		t.Errorf("got %+v, %v, %v", out, info.Mode(), err)
	}
	put(t, dir, "a", "B")
	fails(t, c, "move_file", m{"source": "a", "destination": other + "/a"}, "system", "EEXIST")
	if get(t, dir, "a") != "B" || get(t, other, "a") != "A" {
		t.Error("a refused move changed something")
	}
	ok[moveOut](t, c, "move_file", m{"source": "a", "destination": other + "/a", "overwrite": true})
	if get(t, other, "a") != "B" || names(t, dir) != "" {
		t.Errorf("after overwriting: %q, the folder holds %q", get(t, other, "a"), names(t, dir))
	}
	put(t, dir, "d/x", "")
	fails(t, c, "move_file", m{"source": "d", "destination": other + "/d"}, "system", "EXDEV")
	fails(t, c, "move_file", m{"source": other + "/none", "destination": "x"}, "system", "ENOENT")
}

//go:build linux

package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, max int) (*Root, *Node, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.MkdirAll(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, max, NewBudget(1000))
	if err != nil {
		t.Fatal(err)
	}
	n := r.Dir()
	t.Cleanup(func() {
		n.Release()
		if r.InUse() != 1 {
			t.Errorf("%d descriptors are left", r.InUse())
		}
		r.Close()
	})
	return r, n, dir
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]error{
		"a": nil, "..a": nil, "a..": nil, "...": nil, " ": nil, "\n": nil, "\xff": nil, strings.Repeat("n", 255): nil,
		"": unix.ENOENT, ".": unix.EINVAL, "..": unix.EINVAL, "/": unix.EINVAL, "a/": unix.EINVAL, "/a": unix.EINVAL,
		"a\x00b": unix.EINVAL, strings.Repeat("n", 256): unix.ENAMETOOLONG,
	} {
		if got := CheckName(name); !errors.Is(got, want) && got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestWhere(t *testing.T) {
	r, root, dir := open(t, 10)
	d, err := root.Lookup("d")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	want := func(place string, errno error) {
		t.Helper()
		if got, err := r.Where(d); got != place || err != errno {
			t.Errorf("it is at %q, %v; want %q, %v", got, err, place, errno)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	want("d", nil)
	rename(dir+"/d", dir+"/e")
	want("e", nil)
	rename(dir+"/e", dir+"-sibling") // a name that begins like the root's
	want("", unix.ESTALE)
	rename(dir+"-sibling", dir+"/f")
	rename(dir, dir+"2") // the root itself may move
	want("f", nil)
	rename(dir+"2", dir)
	if got, err := r.Where(root); got != "" || err != nil {
		t.Errorf("the root is at %q, %v", got, err)
	}
}

func TestLimitAndRelease(t *testing.T) {
	r, root, _ := open(t, 3)
	a, err := root.Lookup("d")
	if err != nil {
		t.Fatal(err)
	}
	b, err := root.Lookup("d")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := root.Lookup("d"); err != unix.ENFILE {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, err := a.Open(unix.O_RDONLY); err != unix.ENFILE {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, _, err := root.Create("f", unix.O_RDWR, 0o600); err != unix.ENFILE {
		t.Errorf("beyond the limit: %v", err)
	}
	a.Acquire().Release()
	if r.InUse() != 3 {
		t.Errorf("%d in use", r.InUse())
	}
	a.Release()
	b.Release()
	if _, err := root.Lookup("none"); err != unix.ENOENT || r.InUse() != 1 {
		t.Errorf("%v, %d in use", err, r.InUse())
	}
}

func TestOpenRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, dir+"/l"); err != nil {
		t.Fatal(err)
	}
	if r, err := Open(dir+"/l", 10, NewBudget(1000)); err == nil {
		r.Close()
		t.Error("opened a link")
	}
}

func TestSharedBudget(t *testing.T) {
	shared := NewBudget(3)
	var dirs []*Node
	for range 2 {
		r, err := Open(t.TempDir(), 10, shared)
		if err != nil {
			t.Fatal(err)
		}
		n := r.Dir()
		dirs = append(dirs, n)
		defer r.Close()
		defer n.Release()
	}
	f, err := dirs[0].Open(unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dirs[1].Open(unix.O_RDONLY); err != unix.ENFILE {
		t.Errorf("beyond what both may hold: %v", err)
	}
	f.Close()
	f, err = dirs[1].Open(unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

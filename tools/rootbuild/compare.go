package rootbuild

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// CompareMounted compares the file system mounted at dir with the tree that it
// was made from: the set of paths, every mode, owner, time, target and byte.
func CompareMounted(dir string, want Tree) error {
	got, err := readMounted(dir)
	if err != nil {
		return fmt.Errorf("cannot compare root filesystem: %w", err)
	}
	return Compare(got, want)
}

// Compare names everything in which got is not want.
func Compare(got, want Tree) error {
	if g, w := got.List(), want.List(); g != w {
		return fmt.Errorf("cannot accept root filesystem: %s", firstDifference(g, w))
	}
	var faults []error
	for n, e := range got {
		if e.Mode.IsRegular() {
			faults = append(faults, sameContent(e, want[n]))
		}
	}
	return errors.Join(faults...)
}

// readMounted lists what is below dir; files are read when they are compared.
func readMounted(dir string) (Tree, error) {
	var t Tree
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		e, err := statMounted(dir, name, d)
		t = append(t, e)
		return err
	})
	return t.sorted(), err
}

func statMounted(dir, name string, d fs.DirEntry) (Entry, error) {
	info, err := d.Info()
	if err != nil {
		return Entry{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Entry{}, fmt.Errorf("%s has no owner", name)
	}
	if stat.Mtim.Sec != 0 || stat.Mtim.Nsec != 0 {
		return Entry{}, fmt.Errorf("%s was modified at %v, want the epoch", name, info.ModTime())
	}
	e := Entry{Path: "/" + strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"), Mode: info.Mode(), UID: int(stat.Uid), GID: int(stat.Gid)}
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		e.Target, err = os.Readlink(name)
	case 0:
		e.Source = name
	}
	return e, err
}

func sameContent(a, b Entry) error {
	x, err := readAll(a)
	if err != nil {
		return err
	}
	y, err := readAll(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("cannot accept root filesystem: content of %s differs", a.Path)
	}
	return nil
}

func readAll(e Entry) ([]byte, error) {
	r, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// firstDifference names the first line in which two file lists differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for n := range min(len(g), len(w)) {
		if g[n] != w[n] {
			return fmt.Sprintf("want %q, got %q", w[n], g[n])
		}
	}
	return fmt.Sprintf("want %d objects, got %d", len(w)-1, len(g)-1)
}

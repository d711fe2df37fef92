// Package rootbuild builds the root filesystem that package rootfs describes:
// it compiles the programs, lays out the tree and writes it as an EROFS image.
package rootbuild

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Entry is one object of the root filesystem: a folder, a regular file or a
// symbolic link. A regular file's content is Data, or the file Source of this
// machine if that is set.
type Entry struct {
	Path   string // absolute and clean
	Mode   fs.FileMode
	UID    int
	GID    int
	Target string // of a link
	Data   []byte
	Source string
}

// String returns the line of e in a file list: mode, owner, path, link target.
func (e Entry) String() string {
	s := fmt.Sprintf("%v %d:%d %s", e.Mode, e.UID, e.GID, e.Path)
	if e.Target != "" {
		s += " -> " + e.Target
	}
	return s
}

// Open returns the content of a regular file.
func (e Entry) Open() (io.ReadCloser, error) {
	if e.Source != "" {
		return os.Open(e.Source)
	}
	return io.NopCloser(strings.NewReader(string(e.Data))), nil
}

// Tree is every object of a root filesystem, sorted by path, "/" first.
type Tree []Entry

// layout collects entries; the folders above each are made as needed.
type layout map[string]Entry

func newLayout() layout {
	return layout{"/": {Path: "/", Mode: fs.ModeDir | 0o755}}
}

func (l layout) add(e Entry) error {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path {
		return fmt.Errorf("cannot add %q to root filesystem: not an absolute, clean path", e.Path)
	}
	if old, ok := l[e.Path]; ok && !(old.Mode.IsDir() && e.Mode.IsDir()) {
		return fmt.Errorf("cannot add %s to root filesystem: it is there already", e.Path)
	}
	if err := l.dir(path.Dir(e.Path)); err != nil {
		return err
	}
	l[e.Path] = e
	return nil
}

// dir makes name and the folders above it.
func (l layout) dir(name string) error {
	if e, ok := l[name]; ok {
		if !e.Mode.IsDir() {
			return fmt.Errorf("cannot add files below %s to root filesystem: it is no folder", name)
		}
		return nil
	}
	return l.add(Entry{Path: name, Mode: fs.ModeDir | 0o755})
}

func (l layout) program(name, source string) error {
	return l.add(Entry{Path: name, Mode: 0o755, Source: source})
}

func (l layout) file(name string, data []byte) error {
	return l.add(Entry{Path: name, Mode: 0o644, Data: data})
}

func (l layout) link(name, target string) error {
	return l.add(Entry{Path: name, Mode: fs.ModeSymlink | 0o777, Target: target})
}

// tree returns the collected entries once they keep the rules of check.
func (l layout) tree() (Tree, error) {
	t := make(Tree, 0, len(l))
	for _, e := range l {
		t = append(t, e)
	}
	return t.sorted(), t.Check()
}

func (t Tree) sorted() Tree {
	slices.SortFunc(t, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return t
}

// Check refuses what must never be in a root filesystem: owners other than
// root, bits beyond rwx, what others may write, links that lead nowhere.
func (t Tree) Check() error {
	var faults []error
	known := map[string]bool{}
	for _, e := range t {
		known[e.Path] = true
	}
	for _, e := range t {
		switch kind := e.Mode.Type(); {
		case e.UID != 0 || e.GID != 0:
			faults = append(faults, fmt.Errorf("%s belongs to %d:%d", e.Path, e.UID, e.GID))
		case e.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0:
			faults = append(faults, fmt.Errorf("%s is setuid, setgid or sticky", e.Path))
		case kind == fs.ModeSymlink:
			if to := resolve(e); !known[to] {
				faults = append(faults, fmt.Errorf("%s leads to %s, which is not there", e.Path, to))
			}
		case kind != 0 && kind != fs.ModeDir:
			faults = append(faults, fmt.Errorf("%s is a %v", e.Path, kind))
		case e.Mode&0o022 != 0:
			faults = append(faults, fmt.Errorf("%s may be written by others (%v)", e.Path, e.Mode))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("cannot use root filesystem: %w", err)
	}
	return nil
}

// resolve returns the path that a link names.
func resolve(e Entry) string {
	if path.IsAbs(e.Target) {
		return path.Clean(e.Target)
	}
	return path.Join(path.Dir(e.Path), e.Target)
}

// List returns the file list of t, one line an entry.
func (t Tree) List() string {
	var b strings.Builder
	for _, e := range t {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

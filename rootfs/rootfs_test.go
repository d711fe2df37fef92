package rootfs_test

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/rootfs"
	"github.com/berthos/berth/tools/rootbuild"
	"github.com/berthos/berth/tools/testimage"
)

var update = flag.Bool("update", false, "rewrite golden files")

// root reads the root filesystem of an image.
func root(t *testing.T, kind string) rootbuild.Tree {
	t.Helper()
	dir := testimage.Dir(t, kind)
	i, _, err := index.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := i.Root.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := rootbuild.ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestFileListGolden(t *testing.T) {
	golden := filepath.Join("testdata", "root.golden")
	got := root(t, index.KindImage).List()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the root filesystem's files changed; -update rewrites %s\n%s", golden, changes(got, string(want)))
	}
	if test := root(t, index.KindTest).List(); test != got {
		t.Errorf("the test image has other files\n%s", changes(test, got))
	}
}

// changes lists the lines that only one of two file lists has.
func changes(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var b strings.Builder
	for _, line := range w {
		if !slices.Contains(g, line) {
			fmt.Fprintln(&b, "-", line)
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			fmt.Fprintln(&b, "+", line)
		}
	}
	return b.String()
}

// TestNothingDangerous holds for what is in the image, not only for what the
// builder was told: no setuid, nothing that others may write, no device.
func TestNothingDangerous(t *testing.T) {
	for _, kind := range []string{index.KindImage, index.KindTest} {
		if err := root(t, kind).Check(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestProgramsAreStatic(t *testing.T) {
	programs := 0
	for _, e := range root(t, index.KindImage) {
		if !e.Mode.IsRegular() {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(e.Data))
		if isELF := err == nil; isELF != (e.Mode.Perm() == 0o755) {
			t.Errorf("%s has mode %v, and being a program is %v", e.Path, e.Mode, isELF)
		}
		if err != nil {
			continue
		}
		programs++
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static", e.Path)
			}
		}
	}
	if want := len(rootfs.Programs()) + 1; programs <= want {
		t.Errorf("%d programs, want more than %d: busybox, PID 1, the enforcer and an app", programs, want)
	}
}

// accounts reads a passwd or group file: name to id.
func accounts(t *testing.T, file string, fields int) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("files/usr/share/berth/etc", file))
	if err != nil {
		t.Fatal(err)
	}
	ids, seen := map[string]int{}, map[int]bool{}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != fields || f[1] != "x" {
			t.Errorf("%s: %q has not %d fields, or a password", file, line, fields)
			continue
		}
		id, err := strconv.Atoi(f[2])
		if err != nil || seen[id] || ids[f[0]] != 0 {
			t.Errorf("%s: %q: no number, or name or number twice", file, line)
		}
		ids[f[0]], seen[id] = id, true
	}
	return ids
}

func TestAccounts(t *testing.T) {
	users, groups := accounts(t, "passwd", 7), accounts(t, "group", 4)
	for name, id := range map[string]int{"root": 0, "supervisor": 900, "app": 10000, "app1": 10001, "app15": 10015} {
		if users[name] != id || groups[name] != id {
			t.Errorf("%s is uid %d and gid %d, want %d", name, users[name], groups[name], id)
		}
	}
	if len(users) != len(groups) {
		t.Errorf("%d users, %d groups", len(users), len(groups))
	}
}

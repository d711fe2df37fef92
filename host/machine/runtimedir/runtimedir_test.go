package runtimedir_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berthos/berth/host/machine/runtimedir"
)

func open(t *testing.T, path string) *runtimedir.Root {
	t.Helper()
	r, err := runtimedir.Open(runtimedir.Search{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCollectOnlyTheDead(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "run"))
	alive, err := r.New("alive")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := r.New("dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead.Path, "something"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dead.Record(runtimedir.Leftovers{Cgroups: []string{filepath.Join(t.TempDir(), "gone")}}); err != nil {
		t.Fatal(err)
	}
	dead.Release()
	ids, err := r.Collect()
	if err != nil || len(ids) != 1 || ids[0] != dead.ID {
		t.Errorf("collected %v, %v; want %s", ids, err, dead.ID)
	}
	if _, err := os.Stat(dead.Path); !os.IsNotExist(err) {
		t.Errorf("the dead sandbox's folder is still there: %v", err)
	}
	if _, err := os.Stat(alive.Path); err != nil {
		t.Errorf("the living sandbox's folder is gone: %v", err)
	}
}

// A folder whose making was cut short has no lock.
func TestCollectUnfinished(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "run"))
	path := filepath.Join(r.Path(), "sandboxes", "cut-short")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if ids, err := r.Collect(); err != nil || len(ids) != 1 {
		t.Errorf("collected %v, %v", ids, err)
	}
}

func TestNewAndCollectAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r, err := runtimedir.Open(runtimedir.Search{Path: path})
			if err != nil {
				t.Error(err)
				return
			}
			for range 20 {
				d, err := r.New("x")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := r.Collect(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(d.Path); err != nil {
					t.Errorf("a living sandbox's folder was collected: %v", err)
				}
				if err := d.Discard(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestUntrustedFolder(t *testing.T) {
	cases := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"others may enter", func(p string) error { return os.Mkdir(p, 0o755) }, "others may enter"},
		{"a symlink", func(p string) error { return os.Symlink("/etc", p) }, "not a folder"},
		{"a file", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "not a folder"},
	}
	if os.Geteuid() == 0 {
		cases = append(cases, struct {
			name string
			make func(path string) error
			want string
		}{"somebody else's", func(p string) error {
			if err := os.Mkdir(p, 0o700); err != nil {
				return err
			}
			return os.Chown(p, 4242, 4242)
		}, "belongs to uid 4242"})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			_, err := runtimedir.Open(runtimedir.Search{Path: path})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// XDG_RUNTIME_DIR of another user, as su leaves it, is passed over.
func TestSearch(t *testing.T) {
	if os.Geteuid() == 0 {
		r, err := runtimedir.Open(runtimedir.Search{})
		if err != nil || r.Path() != "/run/berth" {
			t.Errorf("as root: %v, %v", r, err)
		}
		return
	}
	own := t.TempDir()
	r, err := runtimedir.Open(runtimedir.Search{Getenv: func(string) string { return own }})
	if err != nil || r.Path() != filepath.Join(own, "berth") {
		t.Errorf("own folder: %v, %v", r, err)
	}
	r, err = runtimedir.Open(runtimedir.Search{Getenv: func(string) string { return "/root" }})
	if err != nil || strings.HasPrefix(r.Path(), "/root") {
		t.Errorf("foreign folder: %v, %v", r, err)
	}
}

func TestIDsAreNotShared(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "run"))
	a, err := r.TakeIDs()
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.TakeIDs()
	if err != nil {
		t.Fatal(err)
	}
	if a.Base == b.Base {
		t.Errorf("both got %d", a.Base)
	}
	a.Release()
	c, err := r.TakeIDs()
	if err != nil || c.Base != a.Base {
		t.Errorf("after its release: %v, %v; want %d again", c, err, a.Base)
	}
}

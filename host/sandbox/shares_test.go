package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

func TestShares(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		rw, ro := t.TempDir(), t.TempDir()
		put(t, rw, "file", "one")
		put(t, ro, "file", "two")
		put(t, rw, ".env", "secret")
		put(t, rw, "sub/.env", "secret")
		put(t, rw, ".git/hooks/pre-commit", "echo good")
		r := w.mustStart(t, func(o *sandbox.Options) {
			o.Shares = []sandbox.Share{
				{HostDir: rw, Path: "/workspace/rw", Exclude: []string{".env"}},
				{HostDir: ro, Path: "/workspace/ro", ReadOnly: true},
			}
			o.Apps = []sandbox.App{w.probe(t, "", func(p *policy.Policy) {
				p.Paths = []policy.Path{{Path: "/workspace/ro", Access: policy.Write}, {Path: "/workspace/rw", Access: policy.Write}}
			})}
		})
		reads := func(path, want string) {
			t.Helper()
			if got, err := r.call("read", obj{"path": path}); err != nil || got != want {
				t.Errorf("read %s: %q, %v", path, got, err)
			}
		}
		reads("/workspace/rw/file", "one") // control
		reads("/workspace/ro/file", "two")
		reads(filepath.Join(rw, "file"), "one")
		for _, path := range []string{"/workspace/rw/.env", "/workspace/rw/sub/.env"} {
			if got, err := r.call("read", obj{"path": path}); err == nil && got != "" {
				t.Errorf("excluded %s is readable: %q", path, got)
			}
		}
		r.refused(t, "/workspace/ro/new", "EROFS", "EACCES")
		r.refused(t, "/workspace/rw/.git/hooks/pre-commit", "EROFS", "EACCES", "EPERM")
		if raw, err := os.ReadFile(filepath.Join(rw, ".git/hooks/pre-commit")); err != nil || string(raw) != "echo good" {
			t.Errorf("a hook was changed: %q, %v", raw, err)
		}
		if _, err := r.call("write", obj{"path": "/workspace/rw/new", "content": "x"}); err != nil { // control
			t.Error(err)
		}
		info, err := os.Stat(filepath.Join(rw, "new"))
		if err != nil || !info.Mode().IsRegular() {
			t.Errorf("on the host: %v, %v", info, err)
		}
	})
}

// refused wants a write to fail with one of some errnos and to have no effect.
func (r *running) refused(t *testing.T, path string, errnos ...string) {
	t.Helper()
	_, err := r.call("write", obj{"path": path, "content": "x"})
	var e *protocol.Error
	if !errors.As(err, &e) || !strings.Contains(strings.Join(errnos, " "), e.Errno) || e.Errno == "" {
		t.Errorf("write to %s: %v, want one of %v", path, err, errnos)
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func TestBadShares(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "file", "x")
	must(t, os.Symlink(dir, filepath.Join(dir, "link")))
	cases := []struct {
		name   string
		shares []sandbox.Share
		want   string
	}{
		{"missing", []sandbox.Share{{HostDir: filepath.Join(dir, "missing")}}, "does not exist"},
		{"a file", []sandbox.Share{{HostDir: filepath.Join(dir, "file")}}, "not a folder"},
		{"the whole host", []sandbox.Share{{HostDir: "/"}}, "the whole host"},
		{"below a file", []sandbox.Share{{HostDir: filepath.Join(dir, "file", "x")}}, "not a directory"},
		{"no name", []sandbox.Share{{}}, "no name given"},
		{"elsewhere", []sandbox.Share{{HostDir: dir, Path: "/etc"}}, "not /workspace"},
		{"climbing", []sandbox.Share{{HostDir: dir, Path: "/workspace/../etc"}}, "not /workspace"},
		{"twice", []sandbox.Share{{HostDir: dir}, {HostDir: dir}}, "another folder is there"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := sandbox.CheckShares(c.shares)
			contains(t, err, "cannot share", c.want)
			if c.want == "does not exist" && hint.Of(err) == "" {
				t.Error("no hint")
			}
		})
	}
}

func TestAliases(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	link := filepath.Join(dir, "link")
	real := filepath.Join(dir, "real")
	must(t, os.Mkdir(real, 0o755))
	must(t, os.Symlink(real, link))
	cases := []struct {
		dir     string
		aliases []string
		notes   int
	}{
		{real, []string{real}, 0},
		{link, []string{real, link}, 0},
		{"/etc", nil, 1},
		{"/dev/shm", nil, 1},
		{"/tmp", nil, 1},
	}
	for _, c := range cases {
		t.Run(c.dir, func(t *testing.T) {
			infos, notes, err := sandbox.CheckShares([]sandbox.Share{{HostDir: c.dir}})
			must(t, err)
			if got := infos[0].Aliases; strings.Join(got, " ") != strings.Join(c.aliases, " ") || len(notes) != c.notes {
				t.Errorf("aliases %v, notes %v", got, notes)
			}
		})
	}
}

// What an app makes in a workspace belongs to the folder's owner on the host. A
// file that also runs as its owner would be a way out for whoever executes it
// there.
func TestNoSetuidFileOnTheHost(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		refused, err := r.call("setuid", obj{"path": "/workspace"})
		must(t, err)
		t.Logf("refused: %s", refused)
		files, err := os.ReadDir(r.ws)
		must(t, err)
		if len(files) == 0 { // control: it can make files
			t.Error("the app made no file at all")
		}
		for _, f := range files {
			info, err := f.Info()
			must(t, err)
			if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s has mode %v on the host", f.Name(), info.Mode())
			}
		}
	})
}

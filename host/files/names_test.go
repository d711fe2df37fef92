//go:build linux

package files

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

func TestJudgement(t *testing.T) {
	n, err := newNames([]string{".env", "*.pem", "secrets"}, HostExecutedNames())
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]string{
		"":                             "",
		"src/main.go":                  "",
		".env":                         "hidden",
		"a/b/.ENV":                     "hidden",
		"a/secrets/b":                  "hidden",
		"key.pem":                      "hidden",
		".env.example":                 "",
		".git":                         "",
		".git/config":                  "protected",
		"sub/.git/hooks/pre-commit":    "protected",
		".GIT/Config":                  "protected",
		".git/config.lock":             "protected",
		".git/index.lock":              "",
		".v\u017fcode/x":               "protected",
		".git/con\ufb01g":              "protected", // one letter "fi": full case folding makes it two
		".\u00dfh/id":                  "protected",
		".git/config\u0301":            "", // an accent makes another name
		".npmrc":                       "protected",
		".g\u200cit/config":            "protected",
		".g\u2060it/HOO\u212aS/x":      "protected",
		"\xff.git/config":              "",
		".git/refs/heads/config":       "",
		".git/refs/heads/hooks":        "",
		".git/modules/a/config":        "protected",
		".git/modules/a/b/hooks/x":     "protected",
		".git/modules/a/HEAD":          "",
		".git/worktrees/w/commondir":   "protected",
		".git/worktrees/w/HEAD":        "",
		"config":                       "",
		"hooks/x":                      "",
		".vscode":                      "protected",
		"a/.vscode/tasks.json":         "protected",
		".vscode2":                     "",
		"x.code-workspace":             "protected",
		".config":                      "",
		".config/fish/config.fish":     "protected",
		".config/other":                "",
		".claude/worktrees/x/src/a.go": "protected",
	} {
		got := ""
		if n.hidden(place) {
			got = "hidden"
		} else if n.protected(place, true) {
			got = "protected"
		}
		if got != want {
			t.Errorf("%q is %q, want %q", place, got, want)
		}
	}
	if !n.protected(".git", false) || !n.protected("sub/.git", false) || n.protected(".gitignore", false) {
		t.Error("a .git that is no directory must be protected, .gitignore not")
	}
}

func TestMayMove(t *testing.T) {
	n, err := newNames(nil, HostExecutedNames())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"a", "b", true},
		{"prepared", ".git", false},
		{"prepared", "sub/.git", false},
		{"a/.git", "b/.git", true},
		{".git", "x", true},
		{".git/modules/a", ".git/modules/b", true},
		{"prepared", ".git/modules/b", false},
		{".git/x", ".git/modules", false},
		{".git/modules/a/tmp", ".git/modules/a/HEAD", true},
		{".git/index.lock", ".git/index", true},
		{".git/worktrees/a", ".git/worktrees/b", true},
		{"prepared", ".git/worktrees/b", false},
		{"conf", ".config", false},
		{"proj", "proj2", true},
	} {
		if got := n.mayMove(c.from, c.to); got != c.ok {
			t.Errorf("move %s to %s: %v, want %v", c.from, c.to, got, c.ok)
		}
	}
}

func TestBadExcludes(t *testing.T) {
	for _, p := range []string{"", ".", "..", "a/b", "[", "a\x00"} {
		if _, err := newNames([]string{p}, nil); err == nil {
			t.Errorf("exclude %q was taken", p)
		}
	}
	if _, err := newNames(slices.Repeat([]string{"x"}, maxExclude+1), nil); err == nil {
		t.Error("too many excludes were taken")
	}
}

func TestShortNames(t *testing.T) {
	n, _ := newNames([]string{".env"}, nil)
	n.aliases = true
	for name, want := range map[string]bool{"ENV~1": true, "a/GIT~1": true, "LONGNA~2.TXT": true, "backup~": false, "a~b": false, "file.txt": false} {
		if n.hidden(name) != want {
			t.Errorf("%s hidden: %v", name, !want)
		}
	}
}

// refusals collects what Options.Refused is told.
type refusals struct {
	mu   sync.Mutex
	list []string
}

func (r *refusals) add(op, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, op+" "+name)
}

func (r *refusals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.list
	r.list = nil
	return l
}

func (r *refusals) want(t *testing.T, want ...string) {
	t.Helper()
	if got := r.take(); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestExcludedNames(t *testing.T) {
	var seen refusals
	g := serve(t, func(o *Options) { o.Exclude = []string{".env", "*.pem"}; o.Refused = seen.add })
	g.put(".env", "secret")
	g.put("a/key.pem", "secret")
	g.put("a/f", "x")
	_, err := g.walk(rootFID, ".env")
	g.want("walk", err, unix.ENOENT)
	_, err = g.walk(rootFID, "a", "key.pem")
	if err == nil {
		t.Error("walked to an excluded name")
	}
	if got := append(g.list(4096), g.list(4096, "a")...); !slices.Equal(got, []string{"a", "f"}) {
		t.Errorf("the guest sees %q", got)
	}
	f, a := g.mustWalk("a", "f"), g.mustWalk("a")
	seen.want(t) // looking is not reported

	_, err = g.create(rootFID, ".env", wire.OpenWrite|wire.OpenTrunc, 0o600)
	g.want("create", err, unix.EACCES)
	g.want("mkdir", g.mkdir(a, "new.pem"), unix.EACCES)
	g.want("symlink", g.symlink(a, "new.pem", "x"), unix.EACCES)
	g.want("link onto", g.link(rootFID, f, "new.pem"), unix.EACCES)
	g.want("rename onto", g.rename(a, "f", rootFID, ".env"), unix.EACCES)
	seen.want(t, "create .env", "mkdir a/new.pem", "symlink a/new.pem", "link new.pem", "rename .env")
	g.want("rename from", g.rename(rootFID, ".env", rootFID, "env"), unix.ENOENT)
	g.want("unlink", g.unlink(rootFID, ".env", 0), unix.ENOENT)
	if g.onHost(".env") != "secret" || g.onHost("a/key.pem") != "secret" {
		t.Error("an excluded file was changed")
	}
	for _, name := range []string{"new.pem", "a/new.pem", "env"} {
		g.missing(name)
	}

	// A handle from before the host gave its file an excluded name.
	g.must(os.Rename(filepath.Join(g.dir, "a/f"), filepath.Join(g.dir, "a/f.pem")))
	g.want("open by an older handle", g.open(f, wire.OpenRead), unix.ENOENT)
	g.want("write by an older handle", g.open(f, wire.OpenWrite), unix.EACCES)
	// Control: the same handle, once the name is no longer excluded.
	g.must(os.Rename(filepath.Join(g.dir, "a/f.pem"), filepath.Join(g.dir, "a/g")))
	g.must(g.open(f, wire.OpenRead))
}

func TestHostExecutedNames(t *testing.T) {
	for _, allow := range []bool{false, true} {
		t.Run(map[bool]string{false: "protected", true: "allowed"}[allow], func(t *testing.T) { hostExecutedNames(t, allow) })
	}
}

func hostExecutedNames(t *testing.T, allow bool) {
	var seen refusals
	g := serve(t, func(o *Options) { o.HostExecuted = map[bool][]string{true: {}}[allow]; o.Refused = seen.add })
	g.put(".git/config", "old")
	g.put(".git/hooks/pre-commit", "old")
	g.put("evil/hooks/pre-commit", "evil")
	g.put("evil/config", "evil")
	g.put("sub/.git", "gitdir: ../.git/modules/sub")
	git, hooks, evil := g.mustWalk(".git"), g.mustWalk(".git", "hooks"), g.mustWalk("evil")

	attempts := []struct {
		name string
		try  func() error
	}{
		{"open config for writing", func() error { return g.open(g.mustWalk(".git", "config"), wire.OpenBoth) }},
		{"truncate config", func() error { return g.truncate(g.mustWalk(".git", "config"), 0) }},
		{"chmod hook", func() error { return g.chmod(g.mustWalk(".git", "hooks", "pre-commit"), 0o755) }},
		{"create hook", func() error { _, err := g.create(hooks, "post-commit", wire.OpenWrite, 0o755); return err }},
		{"create .envrc", func() error { _, err := g.create(rootFID, ".envrc", wire.OpenWrite, 0o755); return err }},
		{"mkdir .vscode", func() error { return g.mkdir(rootFID, ".vscode") }},
		{"symlink .mcp.json", func() error { return g.symlink(rootFID, ".mcp.json", "evil/config") }},
		{"hard link to config", func() error { return g.link(rootFID, g.mustWalk(".git", "config"), "c") }},
		{"hard link as config", func() error { return g.link(git, g.mustWalk("evil", "config"), "config.worktree") }},
		{"rename onto config", func() error { return g.rename(evil, "config", git, "config") }},
		{"unlink hook", func() error { return g.unlink(hooks, "pre-commit", 0) }},
		{"gitfile", func() error { _, err := g.create(evil, ".git", wire.OpenWrite, 0o644); return err }},
		{"move a gitfile", func() error { return g.rename(g.mustWalk("sub"), ".git", evil, ".git") }},
		{"git as a link", func() error { return g.symlink(g.mustWalk("sub"), ".git", "..") }},
	}
	for _, a := range attempts {
		err := a.try()
		if allow {
			if err != nil {
				t.Errorf("%s: %v, though it is allowed", a.name, err)
			}
			continue
		}
		g.want(a.name, err, unix.EACCES)
		if len(seen.take()) != 1 {
			t.Errorf("%s was not reported once", a.name)
		}
	}
	if allow {
		return
	}
	if g.onHost(".git/config") != "old" || g.onHost(".git/hooks/pre-commit") != "old" {
		t.Error("a protected file was changed")
	}
	// What git needs for a commit goes on.
	fid, err := g.create(git, "index.lock", wire.OpenWrite|wire.OpenExcl, 0o644)
	g.must(err)
	g.must(g.clunk(fid))
	g.must(g.rename(git, "index.lock", git, "index"))
	fid = g.mustWalk(".git", "config")
	g.must(g.open(fid, wire.OpenRead))
}

// A folder that was prepared elsewhere can not become a repository.
func TestPreparedRepository(t *testing.T) {
	g := serve(t, nil)
	g.must(g.mkdir(rootFID, "evil"))
	fid, err := g.create(g.mustWalk("evil"), "config", wire.OpenWrite, 0o644)
	g.must(err)
	g.must(g.write(fid, 0, []byte("[core] fsmonitor = evil")))
	g.want("rename to .git", g.rename(rootFID, "evil", rootFID, ".git"), unix.EACCES)
	g.missing(".git")
	// By way of an empty .git, from within, and by moving its parent.
	g.must(g.mkdir(rootFID, "r"))
	g.must(g.mkdir(g.mustWalk("r"), ".git"))
	g.want("move the file in", g.rename(g.mustWalk("evil"), "config", g.mustWalk("r", ".git"), "config"), unix.EACCES)
	g.want("replace the empty one", g.rename(rootFID, "evil", g.mustWalk("r"), ".git"), unix.EACCES)
	g.must(g.rename(g.mustWalk("r"), ".git", rootFID, "plain")) // no repository any more
	g.must(g.rename(rootFID, "evil", g.mustWalk("plain"), "evil"))
	g.want("back again", g.rename(rootFID, "plain", g.mustWalk("r"), ".git"), unix.EACCES)
	for _, p := range []string{".git/config", "r/.git/config"} {
		g.missing(p)
	}
}

func TestReadOnly(t *testing.T) {
	g := serve(t, func(o *Options) { o.ReadOnly = true; o.HostExecuted = []string{} })
	g.put("d/f", "x")
	f, d := g.mustWalk("d", "f"), g.mustWalk("d")
	for what, err := range map[string]error{
		"open for writing": g.open(f, wire.OpenBoth),
		"open to truncate": g.open(f, wire.OpenRead|wire.OpenTrunc),
		"create":           g.call(wire.Tlcreate, g.mustWalk(), "n", uint32(wire.OpenWrite), uint32(0o600), uint32(0)),
		"write":            g.write(f, 0, []byte("y")),
		"chmod":            g.chmod(f, 0o777),
		"truncate":         g.truncate(f, 0),
		"mkdir":            g.mkdir(d, "n"),
		"mknod":            g.call(wire.Tmknod, d, "n", uint32(unix.S_IFREG), uint32(0), uint32(0), uint32(0)),
		"symlink":          g.symlink(d, "n", "x"),
		"link":             g.link(d, f, "n"),
		"rename":           g.rename(d, "f", d, "n"),
		"unlink":           g.unlink(d, "f", 0),
	} {
		g.want(what, err, unix.EROFS)
	}
	g.missing("d/n")
	if st, _ := os.Stat(filepath.Join(g.dir, "d/f")); g.onHost("d/f") != "x" || st.Mode() != 0o644 {
		t.Error("the file was changed")
	}
	// Control: reading goes on.
	g.must(g.open(f, wire.OpenRead))
	p, err := g.read(f, 0, 10)
	g.must(err)
	if string(p) != "x" || !slices.Equal(g.list(4096, "d"), []string{"f"}) {
		t.Errorf("read %q", p)
	}
}

// A file that was free when the guest opened it, and that git on the host
// makes its config, is not written through the old handle.
func TestLockFileOfTheHost(t *testing.T) {
	g := serve(t, nil)
	g.put(".git/config", "old")
	g.put(".git/tmp", "new")
	fid := g.mustWalk(".git", "tmp")
	g.must(g.open(fid, wire.OpenBoth))
	g.must(g.write(fid, 0, []byte("control")))
	g.must(os.Rename(filepath.Join(g.dir, ".git/tmp"), filepath.Join(g.dir, ".git/config")))
	g.want("write", g.write(fid, 0, []byte("evil")), unix.EACCES)
	g.want("truncate", g.truncate(fid, 0), unix.EACCES)
	if got := g.onHost(".git/config"); got != "control" {
		t.Errorf("the config is %q", got)
	}
}

func TestFold(t *testing.T) {
	for a, b := range map[string]string{"A": "a", "\u212a": "k", "\u017f": "S", "\u00c4": "\u00e4", "a\u00adb": "AB", "\xff": "\xff", "a\xffB": "A\xffb"} {
		if fold(a) != fold(b) {
			t.Errorf("%q and %q differ", a, b)
		}
	}
	for a, b := range map[string]string{"a": "b", "\xff": "\xfe", "\u00e4": "a", "\ufffd": "\xff"} {
		if fold(a) == fold(b) {
			t.Errorf("%q and %q are the same", a, b)
		}
	}
}

func TestListIsWellFormed(t *testing.T) {
	for _, p := range HostExecutedNames() {
		if err := CheckHostExecuted(p); err != nil || p != fold(p) {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "/etc", "a/../b", "a/", "*", "**", "**/x", "a/**", "a/**/**/b", "[", "a\x00", "ü", "../x"} {
		if CheckHostExecuted(bad) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// An app whose policy names some is free to change these and no others.
func TestSomeHostExecutedNames(t *testing.T) {
	var seen refusals
	g := serve(t, func(o *Options) {
		o.HostExecuted = WithoutNames(HostExecutedNames(), []string{".git/config", ".GIT/config.lock", gitFile})
		o.Refused = seen.add
	})
	g.put(".git/config", "old")
	g.put(".git/hooks/pre-commit", "old")
	git := g.mustWalk(".git")
	fid, err := g.create(git, "config.lock", wire.OpenWrite, 0o644)
	g.must(err)
	g.must(g.write(fid, 0, []byte("new")))
	g.must(g.rename(git, "config.lock", git, "config"))
	_, err = g.create(rootFID, "file", wire.OpenWrite, 0o644)
	g.must(err)
	g.must(g.rename(rootFID, "file", g.mustWalk(".git"), "x"))
	seen.want(t)
	if got := g.onHost(".git/config"); got != "new" {
		t.Errorf("the config is %q", got)
	}
	for name, err := range map[string]error{
		"hook":            g.open(g.mustWalk(".git", "hooks", "pre-commit"), wire.OpenWrite),
		"hooks":           g.rename(git, "hooks", rootFID, "h"),
		"config.worktree": g.mkdir(git, "config.worktree"),
		".vscode":         g.mkdir(rootFID, ".VScode"),
	} {
		g.want(name, err, unix.EACCES)
	}
	if n := len(seen.take()); n != 4 {
		t.Errorf("%d of 4 refusals were reported", n)
	}
}

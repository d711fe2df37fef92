package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/init/sandbox"
)

// plantFiles makes files, with their paths as contents, owned by the app.
func (b base) plantFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, full, []byte(name))
		for p := full; strings.HasPrefix(p, dir); p = filepath.Dir(p) {
			if err := os.Chown(p, b.uid, b.uid); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// treeCases say, for grants of every shape, what an app can do where.
var treeCases = []struct {
	name   string
	grants []string
	shares func(b base) []sandbox.Share
	want   string // lines of ACTION:PATH ANSWER
}{
	{"nothing", nil, one, `
			stat:/workspace ENOENT
			list:/ EACCES
			create:/tmp/x EACCES
			create:/x EROFS
			create:/etc/x EROFS
			create:/app/x EROFS
			create:/scratch/x ok
			read:/scratch/x by the app
			list:/dev EACCES
			stat:/sys ENOENT
			stat:/run/berth ENOENT
			list:/etc 1
			write:/etc/passwd EACCES`},
	{"a folder to read", []string{"read:/workspace/docs"}, one, `
			read:/workspace/docs/a docs/a
			list:/workspace/docs 1
			write:/workspace/docs/a EROFS
			create:/workspace/docs/x EROFS
			stat:/workspace/src ENOENT
			create:/workspace/x EROFS
			list:/workspace EACCES`},
	{"a folder to write", []string{"write:/workspace/docs"}, one, `
			create:/workspace/docs/x ok
			read:/workspace/docs/x by the app
			stat:/workspace/src/b ENOENT`},
	{"write inside read", []string{"read:/workspace", "write:/workspace/src"}, one, `
			read:/workspace/docs/a docs/a
			create:/workspace/docs/x EROFS
			create:/workspace/x EROFS
			create:/workspace/src/x ok
			list:/workspace 3`},
	{"read inside write", []string{"write:/workspace", "read:/workspace/src"}, one, `
			create:/workspace/x ok
			create:/workspace/src/x ok`},
	{"a file", []string{"read:/workspace/docs/a", "write:/workspace/top"}, one, `
			read:/workspace/docs/a docs/a
			write:/workspace/docs/a EROFS
			write:/workspace/top ok
			create:/workspace/docs/x EROFS
			list:/workspace/docs EACCES`},
	{"/tmp", []string{"write:/tmp"}, one, `
			create:/tmp/x ok
			read:/tmp/x by the app`},
	{"below /tmp", []string{"write:/tmp/mine", "read:/tmp/other"}, one, `
			create:/tmp/mine/x ok
			create:/tmp/other/x EACCES
			list:/tmp/other 0
			create:/tmp/x EACCES`},
	{"/app", []string{"read:/app"}, one, `
			list:/app 1
			create:/app/x EROFS`},
	{"under the host's path too", []string{"write:/workspace/docs", "read:/workspace/src"}, aliased, `
			create:/home/user/project/docs/x ok
			read:/workspace/docs/x by the app
			create:/tmp/project/docs/y ok
			read:/home/user/project/src/b src/b
			create:/home/user/project/src/x EROFS
			stat:/home/user/project/top ENOENT
			create:/home/user/x EROFS
			list:/home EACCES`},
	{"a read-only share", []string{"write:/workspace"}, readOnlyShare, `
			read:/workspace/docs/a docs/a
			create:/workspace/x EROFS
			write:/workspace/docs/a EROFS`},
	{"several shares", []string{"read:/workspace", "write:/workspace/two/sub"}, several, `
			list:/workspace 2
			read:/workspace/one/docs/a docs/a
			read:/workspace/two/f f
			create:/workspace/two/x EROFS
			create:/workspace/two/sub/x ok
			create:/workspace/x EROFS`},
}

func TestTree(t *testing.T) {
	for _, profile := range profiles {
		for _, c := range treeCases {
			t.Run(string(profile)+"/"+c.name, func(t *testing.T) {
				b := newBase(t, profile, "")
				b.plantFiles(t, b.share, "top", "docs/a", "src/b")
				b.plantFiles(t, filepath.Join(b.dir, "second"), "f", "sub/g")
				var args, want []string
				for line := range strings.Lines(strings.TrimSpace(c.want)) {
					action, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
					args, want = append(args, action), append(want, action+" "+answer)
				}
				j := b.job(profile, append([]string{"-do"}, args...), grants(c.grants...)...).withCgroup(t)
				j.Spec.Shares = c.shares(b)
				o := start(t, j)
				if got := strings.TrimSpace(o.Stdout); got != strings.Join(want, "\n") {
					t.Errorf("%+v\ngot\n%s\nwant\n%s", o.failed(), got, strings.Join(want, "\n"))
				}
			})
		}
	}
}

func one(b base) []sandbox.Share {
	return []sandbox.Share{{Path: "/workspace", Source: b.share}}
}

func aliased(b base) []sandbox.Share {
	s := one(b)
	s[0].Aliases = []string{"/home/user/project", "/tmp/project"}
	return s
}

func readOnlyShare(b base) []sandbox.Share {
	s := one(b)
	s[0].ReadOnly = true
	return s
}

func several(b base) []sandbox.Share {
	return []sandbox.Share{{Path: "/workspace/one", Source: b.share}, {Path: "/workspace/two", Source: filepath.Join(b.dir, "second")}}
}

// TestReplaced swaps a granted folder for another, and for a symlink, while the
// app runs: the app keeps the folder that was granted.
func TestReplaced(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		for _, replace := range []string{"folder", "symlink"} {
			b.plantFiles(t, b.share, "docs/a", "secret/a")
			j := b.job(profile, []string{"-serve"}, grants("read:/workspace/docs")...).withCgroup(t)
			j.Call = "read:/workspace/docs/a"
			j.Swap = []string{"docs", "secret", replace}
			o := start(t, j)
			if o.Answer != "docs/a" {
				t.Errorf("%s: after a swap by a %s the app reads %q (%+v)", profile, replace, o.Answer, o.failed())
			}
			os.RemoveAll(b.share)
			os.MkdirAll(b.share, 0o755)
		}
	}
}

package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

var capabilities = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
	place := rapid.SampledFrom([]string{"/workspace", "/workspace/a", "/workspace/a/b", "/workspace/c", "/tmp", "/tmp/a"})
	port := rapid.SampledFrom([]string{"80", "443", "8080"})
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return "network:connect:" + port.Draw(t, "port")
	case 1:
		return "network:bind:" + port.Draw(t, "port")
	case 2:
		return rapid.SampledFrom([]string{"terminal:attach:*", "app:invoke:notes", "app:invoke:notes.add", "app:invoke:search.find"}).Draw(t, "other")
	case 3:
		return "filesystem:write:" + place.Draw(t, "path")
	}
	return "filesystem:read:" + place.Draw(t, "path")
}), 0, 6)

// app draws a manifest: its capabilities, and which of them two of its exports keep.
var app = rapid.Custom(func(t *rapid.T) policy.Policy {
	all := capabilities.Draw(t, "capabilities")
	text := "exports:\n  - name: main\n"
	if rapid.Bool().Draw(t, "no main") {
		text = "exports:\n"
	}
	for _, name := range []string{"a", "b"} {
		kept := slices.DeleteFunc(slices.Clone(all), func(string) bool { return rapid.Bool().Draw(t, name) })
		text += fmt.Sprintf("  - name: %s\n    capabilities: [%s]\n", name, list(kept))
	}
	return compiled(t, all, text)
})

func list(items []string) string {
	var b strings.Builder
	for _, i := range items {
		fmt.Fprintf(&b, "%q, ", i)
	}
	return b.String()
}

func compiled(t interface{ Fatalf(string, ...any) }, capabilities []string, rest string) policy.Policy {
	text := "name: sample\nversion: 1.0.0\ncapabilities: [" + list(capabilities) + "]\n" + rest
	m, err := manifest.Parse("berth.yml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, _, err := compile.Compile(m, "sha256:"+strings.Repeat("0", 64))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// TestDiffMissesNothing: if the app, or the process of an export, may do
// something that it could not, a change says that it widens; and none does else.
func TestDiffMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := app.Draw(t, "from"), app.Draw(t, "to")
		beyond := to.Beyond(from.Rights)
		for _, export := range to.AllExports() {
			now := rightsOf(to, export)
			if _, had := from.Serves(export); had {
				if more := now.Beyond(rightsOf(from, export)); more != "" {
					beyond = more
				}
				continue
			}
			fits := false
			for _, process := range from.Processes() {
				p, err := from.For(process)
				if err != nil {
					t.Fatal(err)
				}
				fits = fits || now.Beyond(p.Rights) == ""
			}
			if !fits {
				beyond = export
			}
		}
		if wider := Widens(Diff(from, to)); (len(wider) > 0) != (beyond != "") {
			t.Errorf("beyond %q, changes %v\n%+v\n%+v", beyond, wider, from, to)
		}
		if same := Diff(from, from); len(same) > 0 {
			t.Errorf("a policy differs from itself: %v", same)
		}
		sawNarrow := false
		for _, c := range Diff(from, to) {
			if sawNarrow && c.Widens {
				t.Error("what widens does not come first")
			}
			sawNarrow = sawNarrow || !c.Widens
			if strings.ContainsAny(c.String(), "\n\x1b") {
				t.Errorf("several lines: %q", c)
			}
		}
	})
}

func TestDiffIsQuoted(t *testing.T) {
	a := compiled(t, nil, "")
	b := a
	b.Argv = []string{"/app/x", "\x1b[31m\n", "\u202e"}
	b.Paths = []policy.Path{{Path: "/workspace/a\u202eb\n", Access: policy.Read}}
	for _, c := range Diff(a, b) {
		for _, r := range c.String() {
			if r < ' ' || r > '~' {
				t.Errorf("%q prints U+%04X", c.Text, r)
			}
		}
	}
}

// TestDiffOfEachKind names each change once.
func TestDiffOfEachKind(t *testing.T) {
	a := compiled(t, []string{"filesystem:read:/workspace", "network:bind:80"}, "exports: [{name: x}, {name: y, capabilities: [\"network:bind:80\"]}]\n")
	b := compiled(t, []string{"filesystem:write:/workspace", "network:connect:443", "terminal:attach:*", "app:invoke:notes", "app:invoke:search.find"},
		"exports: [{name: x, capabilities: []}, {name: z}]\nsecrets: [TOKEN]\nhost_executed: [.envrc]\nresources: {cpu: 2, memory_mb: 128, pids: 256}\nrun: [/app/other]\n")
	var got []string
	for _, c := range Diff(a, b) {
		got = append(got, c.String())
	}
	want := `+ may now write files in /workspace
+ may now connect to port 443
+ may now make and use pseudo terminals
+ may now call every export of app notes
+ may now call find of app search
+ may now be given the secret TOKEN
+ may now change .envrc, which programs of the host execute or obey
+ may use 2 CPUs, before 1
+ may use 256 threads, before 128
- may no longer bind port 80
- may use 128 MiB of memory, before 256
- runs /app/other, before /app/sample
- no longer exports y
- exports z as well
- may no longer read files in /workspace (only export x)`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// TestFixFixes: the capability that an answer names is what was missing, and no
// answer that allows needs one.
func TestFixFixes(t *testing.T) {
	objects := []string{"/workspace", "/workspace/a/f", "/workspace/c", "/tmp/a/x", "/tmp", "/etc/passwd", "/root", "/app/x", "/scratch", "/run", "notes", "notes.add", "search.other", "80", "443", "127.0.0.1:8080", "10.0.0.1:80"}
	rapid.Check(t, func(t *rapid.T) {
		have := capabilities.Draw(t, "capabilities")
		q := Question{rapid.SampledFrom(Ops()).Draw(t, "op"), rapid.SampledFrom(objects).Draw(t, "object")}
		a, err := Why(compiled(t, have, ""), policy.Main, Sandbox{}, q)
		if err != nil {
			return // not a question
		}
		switch {
		case a.By == "" || a.Allowed && a.Fix+a.Advice != "" || !a.Allowed && a.Fix+a.Advice == "":
			t.Errorf("%+v: %+v", q, a)
		case a.Line != "" && a.Allowed && !slices.ContainsFunc(have, func(c string) bool { return c == a.Line }):
			t.Errorf("%+v: line %s is not in %q", q, a.Line, have)
		case a.Fix != "":
			if b, err := Why(compiled(t, append(have, a.Fix), ""), policy.Main, Sandbox{}, q); err != nil || !b.Allowed {
				t.Errorf("%+v: with %s: %v %+v", q, a.Fix, err, b)
			}
		}
	})
}

func TestWhyUnderstands(t *testing.T) {
	p := compiled(t, []string{"filesystem:read:/workspace", "network:connect:443"}, "")
	in := Sandbox{Shares: []Share{{Path: "/workspace", Aliases: []string{"/home/u/p"}}}}
	for _, bad := range []Question{{"fly", "/x"}, {Read, ""}, {Read, "a\x00"}, {Connect, "0"}, {Connect, "65536"}, {Connect, "x"}, {Bind, ""}, {Call, ""}, {Call, "a."}, {Call, "a/b"}} {
		if a, err := Why(p, policy.Main, in, bad); err == nil {
			t.Errorf("%+v: %+v", bad, a)
		}
	}
	if _, err := Why(p, "nobody", in, Question{Read, "/x"}); err == nil {
		t.Error("a process that does not exist was answered for")
	}
	for object, want := range map[string]string{
		"f": "/workspace/f", "/home/u/p/f": "/workspace/f", "/home/u/p": "/workspace", "/workspace/../etc": "/etc", "/proc/self/root/etc": "/etc",
		"/proc/self/task/7/cwd/f": "/workspace/f", "/proc/thread-self/root": "/", "/home/u/px": "/home/u/px", "/proc/self/root/proc/self/cwd/f": "/workspace/f",
	} {
		if a, err := Why(p, policy.Main, in, Question{Read, object}); err != nil || a.Object != want {
			t.Errorf("%s: %v %+v, want %s", object, err, a, want)
		}
	}
	for _, local := range []string{"443", ":443", "127.0.0.1:443", "localhost:443", "[::1]:443", "0.0.0.0:443"} {
		if a, err := Why(p, policy.Main, in, Question{Connect, local}); err != nil || !a.Allowed {
			t.Errorf("%s: %v %+v", local, err, a)
		}
	}
	for _, outside := range []string{"example.com:443", "192.0.2.1:443", "[2001:db8::1]:443"} {
		if a, err := Why(p, policy.Main, in, Question{Connect, outside}); err != nil || a.Allowed {
			t.Errorf("%s: %v %+v", outside, err, a)
		}
	}
}

// TestWhyInShares: what the folders decide, not the manifest.
func TestWhyInShares(t *testing.T) {
	p := compiled(t, []string{"filesystem:write:/workspace"}, "")
	in := Sandbox{
		Shares:       []Share{{Path: "/workspace/ro", ReadOnly: true}, {Path: "/workspace/rw", Excluded: func(rel string) bool { return rel == ".env" }}},
		HostExecuted: func(rel string) bool { return rel == ".envrc" },
		Readlink: func(name string) string {
			return map[string]string{"/workspace/rw/link": "/etc/passwd", "/workspace/rw/loop": "loop", "/root/link": "/workspace/rw"}[name]
		},
	}
	for _, c := range []struct {
		op      Op
		object  string
		allowed bool
		by      string
	}{
		{Read, "/workspace/ro/f", true, "manifest"},
		{Write, "/workspace/ro/f", false, "read-only"},
		{Write, "/workspace/rw/f", true, "manifest"},
		{Write, "/workspace/rw/.envrc", false, "execute or obey"},
		{Read, "/workspace/rw/.envrc", true, "manifest"},
		{Read, "/workspace/rw/.env", false, "excluded"},
		{Write, "/workspace/rw/.env", false, "excluded"},
		{Read, "/workspace", true, "manifest"},
		{Write, "/workspace", false, "holds only the shared folders"},
		{Read, "/workspace/other", false, "holds only the shared folders"},
		{Write, "/workspace/rw/link", false, "baseline of /etc"},
		{Read, "/root/link/f", false, "does not exist"},
	} {
		a, err := Why(p, policy.Main, in, Question{c.op, c.object})
		if err != nil || a.Allowed != c.allowed || !strings.Contains(a.By, c.by) {
			t.Errorf("%s %s: %v %+v, want %t by %q", c.op, c.object, err, a, c.allowed, c.by)
		}
	}
	if _, err := Why(p, policy.Main, in, Question{Read, "/workspace/rw/loop"}); err == nil {
		t.Error("a link to itself was followed")
	}
}

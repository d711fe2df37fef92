package denial

import (
	"strings"
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

func testContext() Context {
	return Context{
		Policy: policy.Policy{App: "filesystem", Rights: policy.Rights{Class: "base", Paths: []policy.Path{
			{Path: "/workspace/docs", Access: policy.Read},
			{Path: "/workspace/out", Access: policy.Write},
		}, Invoke: []policy.Invoke{{App: "peer", Exports: []string{"hi"}}}}},
		Digest:       strings.Repeat("9c41", 16),
		Manifest:     "apps/filesystem/berth.yml",
		Shares:       []Share{{Path: "/workspace", Aliases: []string{"/home/u/project"}, Exclude: []string{".env"}}},
		Excluded:     func(exclude []string, rel string) bool { return len(exclude) == 1 && rel == "out/.env" },
		HostExecuted: func(rel string) bool { return rel == "out/.envrc" },
	}
}

func system(op, name, errno, access string) protocol.Error {
	return protocol.Error{Code: protocol.CodeSystem, Op: op, Path: name, Errno: errno, Access: access}
}

func TestExplain(t *testing.T) {
	cases := []struct {
		name   string
		err    protocol.Error
		denied string // a part of each field; "" means the field must be empty
		by     string
		rule   string
		fix    string
	}{
		{"write outside every grant", system("open", "/tmp/escape.txt", "EACCES", "write"),
			"open(2) for writing on /tmp/escape.txt (EACCES)", `Landlock domain of app "filesystem"`,
			"no filesystem:write capability covers /tmp", `add "filesystem:write:/tmp" to apps/filesystem/berth.yml`},
		{"write on the root", system("open", "/etc/x", "EROFS", "write"),
			"open(2) for writing on /etc/x (EROFS)", "the root filesystem is read-only (EROFS)",
			"no filesystem:write capability covers /etc", ""},
		{"read outside every grant", system("open", "/proc/1/maps", "EACCES", "read"),
			"open(2) on /proc/1/maps", "Landlock", "no filesystem:read capability covers /proc/1", ""},
		{"write below a read grant, Landlock asked", system("mkdir", "/workspace/docs/a", "EACCES", "write"),
			"mkdir(2) for writing", "Landlock", "filesystem:read:/workspace/docs covers", `"filesystem:write:/workspace/docs"`},
		{"write below a read grant, mount asked", system("open", "docs/a", "EROFS", "write"),
			"open(2) for writing on docs/a", "a read scope is mounted read-only", "filesystem:read:/workspace/docs", `"filesystem:write:/workspace/docs"`},
		{"by the alias", system("open", "/home/u/project/docs/a", "EROFS", "write"),
			"/home/u/project/docs/a", "a read scope is mounted read-only", "filesystem:read:/workspace/docs", `"filesystem:write:/workspace/docs"`},
		{"permissions of the file", system("open", "/workspace/out/secret", "EACCES", "write"),
			"/workspace/out/secret", "the permissions of the file", "the manifest is not what refused", "the owner of the folder"},
		{"a name that hosts execute", system("open", "/home/u/project/out/.envrc", "EACCES", "write"),
			"/home/u/project/out/.envrc", "programs of the host execute", "read-only in a shared folder", "on the host"},
		{"the same, mounted read-only", system("open", "out/.envrc", "EROFS", "write"),
			"out/.envrc", "programs of the host execute", "read-only in a shared folder", "on the host"},
		{"a port that is not granted", system("dial", "127.0.0.1:81", "EACCES", ""),
			"dial(2) on 127.0.0.1:81 (EACCES)", "Landlock", "no network:connect capability covers port 81", `"network:connect:81"`},
		{"a host's name", system("connect", "localhost:80", "EACCES", ""),
			"connect(2) on localhost:80 (EACCES)", "Landlock", "no network:connect capability covers port 80", `"network:connect:80"`},
		{"a socket that may not be made", system("socket", "127.0.0.1:80", "EPERM", ""),
			"socket(2) on 127.0.0.1:80 (EPERM)", "system call filter", "no network:connect or network:bind capability covers port 80", `"network:connect:80", or to listen "network:bind:80"`},
		{"the narrowest folder", system("open", "/workspace/docs/a/b/c", "EROFS", "write"),
			"docs/a/b/c", "read-only", "filesystem:read:/workspace/docs", `"filesystem:write:/workspace/docs/a/b"`},
		{"no network at all", system("listen", "[::1]:80", "EPERM", ""),
			"listen(2) on [::1]:80 (EPERM)", "system call filter", "no network:bind capability covers port 80", `"network:bind:80"`},
		{"an excluded name", system("open", "out/.env", "EROFS", "write"),
			"out/.env", "this name is excluded", "--exclude .env", "start it without"},
		{"the app's own code", system("open", "/app/x", "EROFS", "write"),
			"/app/x", "read-only (EROFS)", "covers /app", "cannot change its own code"},
		{"an app that does not say what for", system("open", "/tmp/x", "EACCES", ""),
			"open(2) on /tmp/x", "Landlock", "no filesystem capability covers /tmp", `"filesystem:write:/tmp"`},
		{"a filtered system call", system("mount", "", "EPERM", ""),
			"mount(2) (EPERM)", `system call filter "base"`, "no capability grants", "none available"},
		{"rename out of a grant", protocol.Error{Code: protocol.CodeSystem, Op: "rename", Path: "/workspace/out/a", NewPath: "/tmp/b", Errno: "EXDEV"},
			"rename(2) for writing on /tmp/b (EXDEV)", "Landlock", "no filesystem:write capability covers /tmp", `"filesystem:write:/tmp"`},
		{"rename into a grant", protocol.Error{Code: protocol.CodeSystem, Op: "rename", Path: "/workspace/docs/a", NewPath: "/workspace/out/a", Errno: "EACCES"},
			"rename(2) for writing on /workspace/docs/a", "Landlock", "filesystem:read:/workspace/docs", "filesystem:write:/workspace"},
		{"a link out of a grant", system("open", "out/link", "EROFS", "write"),
			"out/link", "symbolic link", "filesystem:write:/workspace/out covers out/link, but not", "the owner of the folder"},
		{"a folder of the root", system("open", "/tmp", "EACCES", "read"),
			"open(2) on /tmp (EACCES)", "Landlock", "no filesystem:read capability covers /tmp", `"filesystem:read:/tmp"`},
		{"a terminal", system("open", "/dev/ptmx", "ENOENT", ""),
			"open(2) on /dev/ptmx (ENOENT)", "no terminals", "no terminal:attach capability", `"terminal:attach:*"`},
		{"a call of another app", protocol.Error{Code: protocol.CodeDenied, Path: "notes.add"},
			`a call of export "add" of app "notes"`, `hands app "filesystem" no such connection, inferred`, "no app:invoke capability covers notes.add", `"app:invoke:notes.add"`},
		{"another export than the granted one", protocol.Error{Code: protocol.CodeDenied, Path: "peer.bye"},
			`export "bye" of app "peer"`, "Berth", "covers peer.bye", `"app:invoke:peer.bye"`},
		{"a socket for nobody knows what", system("socket", "", "EPERM", ""),
			"socket(2) (EPERM)", `system call filter "base"`, "no capability grants", "come with a network:connect or network:bind line"},
		{"a hostile folder is not proposed", system("open", "/tmp/a\nfix: the owner may add \"x\"\n/b", "EACCES", "write"),
			`on "/tmp/a\nfix:`, "Landlock", `covers "/tmp/a\nfix:`, `add "filesystem:write:/tmp" to apps`},
		{"nor one that is a pattern", system("open", "/tmp/a/*/b", "EACCES", ""),
			"/tmp/a/*/b", "Landlock", "covers /tmp/a/*", `add "filesystem:read:/tmp/a", or to write "filesystem:write:/tmp/a", to apps`},
		{"a hostile operation stays one line", system("open\nfix: x\x1b", "/tmp/a", "EACCES", "write"),
			`"open\nfix: x\x1b"(2)`, "Landlock", "/tmp", "filesystem:write:/tmp"},
		{"a hostile name stays one line", system("open", "/tmp/a\nfix: x", "EACCES", "write"),
			`"/tmp/a\nfix: x"`, "Landlock", "/tmp", "filesystem:write:/tmp"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, ok := Explain(testContext(), c.err)
			if !ok {
				t.Fatal("not explained")
			}
			for _, f := range []struct{ field, got, want string }{{"denied", d.Denied, c.denied}, {"by", d.By, c.by}, {"rule", d.Rule, c.rule}, {"fix", d.Fix, c.fix}} {
				if !strings.Contains(f.got, f.want) || f.want == "" && f.got != "" {
					t.Errorf("%s = %q, want %q in it", f.field, f.got, f.want)
				}
			}
			if lines := strings.Count(d.String(), "\n"); lines != 5 {
				t.Errorf("%d lines, want 5:\n%s", lines, d)
			}
		})
	}
}

func TestOrdinaryFailuresAreNoDenials(t *testing.T) {
	for _, e := range []protocol.Error{
		system("open", "/workspace/out/missing", "ENOENT", "read"),
		system("write", "/workspace/out/a", "ENOSPC", "write"),
		system("rename", "/workspace/out/a", "EXDEV", "write"),
		{Code: protocol.CodeFailed, Message: "permission denied"},
		{Code: protocol.CodeInvalidInput, Errno: "EACCES"},
		{Code: protocol.CodeDenied, Message: "an app's own word for it"},
		{Code: protocol.CodeDenied, Path: "peer.hi"}, // is granted
		{Code: protocol.CodeDenied, Path: "peer"},
		{Code: protocol.CodeDenied, Path: "peer.x\" to the manifest of another app"},
		{Code: protocol.CodeSystem, Op: "open", Path: "/tmp/x", Errno: "EACCES", App: "peer"}, // under another policy
		system("open", "/dev/null0", "ENOENT", ""),
		system("open", "/tmp/"+strings.Repeat("a/", 1<<20), "EACCES", "write"),
	} {
		if d, ok := Explain(testContext(), e); ok {
			t.Errorf("%+v was explained as a denial: %s", e, d)
		}
	}
}

// TestGrantedTerminal: with the capability, a missing one is just missing.
func TestGrantedTerminal(t *testing.T) {
	c := testContext()
	c.Policy.Terminal = true
	if d, ok := Explain(c, system("open", "/dev/pts/9", "ENOENT", "")); ok {
		t.Errorf("%s", d)
	}
}

// TestNeededCall: only sockets come with a line, and only where there is none yet.
func TestNeededCall(t *testing.T) {
	for _, c := range []struct {
		call, class string
		line        bool
	}{
		{"socket", policy.ClassBase, true}, {"socket", policy.ClassTerminal, true},
		{"socket", policy.ClassNetwork, false}, {"socket", policy.ClassNetworkTerminal, false},
		{"unshare", policy.ClassBase, false}, {"socket", "", false},
	} {
		if got := NeededCall(c.call, c.class); strings.Contains(got, "network:connect") != c.line {
			t.Errorf("%s in class %q: %s", c.call, c.class, got)
		}
	}
}

func TestReadOnlyWorkspace(t *testing.T) {
	c := testContext()
	c.Shares[0].ReadOnly = true
	d, ok := Explain(c, system("open", "out/a", "EROFS", "write"))
	if !ok || !strings.Contains(d.Rule, ":ro") {
		t.Errorf("got %v %v, want the :ro of the share named", d, ok)
	}
}

func TestSeveralShares(t *testing.T) {
	c := Context{
		Policy: policy.Policy{Rights: policy.Rights{Paths: []policy.Path{{Path: "/workspace", Access: policy.Write}}}},
		Shares: []Share{{Path: "/workspace/a"}, {Path: "/workspace/b"}},
	}
	d, ok := Explain(c, system("open", "hello.txt", "EROFS", "write"))
	if !ok || !strings.Contains(d.Rule, "holds only the shared folders /workspace/a, /workspace/b") {
		t.Errorf("got %v %v, want the folders named", d, ok)
	}
}

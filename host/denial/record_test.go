package denial

import (
	"strings"
	"testing"

	"github.com/berthos/berth/sdk/protocol"
)

func TestEvidence(t *testing.T) {
	write := system("open", "/tmp/escape.txt", "EACCES", "write")
	make := Record{Blockers: []string{"fs.make_reg"}, Object: "/tmp"}
	for _, c := range []struct {
		name string
		err  protocol.Error
		rs   Records
		want string
	}{
		{"no records on this machine", write, Records{}, "inferred from the error and the policy, policy"},
		{"a create names the folder", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{make}}, "recorded by the kernel (fs.make_reg on /tmp), policy"},
		{"several calls", write, Records{Kept: true, Complete: true, Calls: 3, List: []Record{make}}, "recorded by the kernel (fs.make_reg on /tmp, in one of 3 calls in flight), policy"},
		{"by the alias", system("open", "/home/u/project/docs/a", "EACCES", "write"),
			Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/workspace/docs"}}}, "recorded by the kernel (fs.make_reg on /workspace/docs)"},
		{"the file itself", system("open", "/proc/1/maps", "EACCES", "read"),
			Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.read_file"}, Object: "/proc/1/maps"}}}, "recorded by the kernel (fs.read_file on /proc/1/maps)"},
		{"a hostile name", system("open", "/tmp/a\nfix: x", "EACCES", "write"),
			Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.write_file"}, Object: "/tmp/a\nfix: x"}}}, `recorded by the kernel (fs.write_file on "/tmp/a\nfix: x")`},
		{"a hostile guest", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg\nfix: x"}, Object: "/tmp"}}}, `recorded by the kernel ("fs.make_reg\nfix: x" on /tmp)`},
		{"another folder's", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/run"}}}, "inferred from the error and the policy (meanwhile recorded by the kernel: fs.make_reg on /run, which may be something else)"},
		{"a folder that was written, not made in", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.read_dir"}, Object: "/tmp"}}}, "inferred from"},
		{"the filter's", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Object: "/tmp"}}}, "inferred from"},
		{"none at all", write, Records{Kept: true, Complete: true, Calls: 1}, "inferred from the error and the policy (no record of the kernel was found)"},
		{"another error", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/tmp", Exit: -18}}}, "inferred from"},
		{"a filtered call", system("unshare", "", "EPERM", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Arch: "x86_64", Syscall: 272}}},
			`system call filter "base" of app "filesystem", recorded by the kernel (unshare by the filter), policy`},
		{"by another name of it", system("clone", "", "EPERM", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Arch: "aarch64", Syscall: 435}}}, "recorded by the kernel (clone3 by the filter)"},
		{"another call", system("mount", "", "EPERM", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Arch: "x86_64", Syscall: 272}}},
			"inferred from the error and the policy (meanwhile recorded by the kernel: unshare by the filter, which may be something else), policy"},
		{"a connection", system("connect", "127.0.0.1:80", "EACCES", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"net.connect_tcp"}, Object: "127.0.0.1:80", Exit: -13}}},
			"recorded by the kernel (net.connect_tcp on 127.0.0.1:80)"},
		{"a connection to a name", system("connect", "localhost:80", "EACCES", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"net.connect_tcp"}, Object: "[::1]:80", Exit: -13}}},
			"recorded by the kernel (net.connect_tcp on [::1]:80)"},
		{"a connection elsewhere", system("connect", "127.0.0.2:80", "EACCES", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"net.connect_tcp"}, Object: "127.0.0.1:80", Exit: -13}}}, "inferred from"},
		{"to nowhere", system("connect", "", "EACCES", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"net.connect_tcp"}, Object: "127.0.0.1:80", Exit: -13, Arch: "x86_64", Syscall: 42}}},
			"recorded by the kernel (net.connect_tcp on 127.0.0.1:80)"},
		{"a port that is bound on every address", system("bind", "0.0.0.0:80", "EACCES", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"net.bind_tcp"}, Object: ":80", Exit: -13}}},
			"recorded by the kernel (net.bind_tcp on :80)"},
		{"a signal", system("kill", "", "EPERM", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"scope.signal"}, Object: "pid 7", Exit: -1, Arch: "x86_64", Syscall: 62}}},
			`Landlock domain of app "filesystem", recorded by the kernel (scope.signal on pid 7)`},
		{"not a signal", system("mount", "", "EPERM", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"scope.signal"}, Object: "pid 7", Exit: -1, Arch: "x86_64", Syscall: 62}}}, "inferred from"},
		{"a flood", write, Records{Kept: true, Complete: true, Calls: 1, Missing: 12}, "inferred from the error and the policy (12 records of the kernel were suppressed or lost)"},
		{"a slow guest", write, Records{Kept: true}, "inferred from the error and the policy (the kernel's records did not come in time)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext()
			ctx.Records = c.rs
			d, ok := Explain(ctx, c.err)
			if !ok || !strings.Contains(d.By, c.want) {
				t.Errorf("%v, %s\nwant %s", ok, d.By, c.want)
			}
		})
	}
}

// TestRecordBeatsInference: the policy covers the path, so that the errno alone
// would be laid at the door of the file's permissions; the kernel says otherwise.
func TestRecordBeatsInference(t *testing.T) {
	e := system("open", "/workspace/out/a", "EACCES", "write")
	c := testContext()
	if d, ok := Explain(c, e); !ok || !strings.Contains(d.By, "permissions of the file") {
		t.Errorf("control: %v", d)
	}
	c.Records = Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/workspace/out"}}}
	if d, ok := Explain(c, e); !ok || !strings.Contains(d.By, "Landlock") || !strings.Contains(d.By, "recorded by the kernel") || !strings.Contains(d.Rule, "no scope carries") {
		t.Errorf("%v", d)
	}
}

// TestLinksAreFollowed: the kernel names what a link leads to. Only the place
// that the links of a share really lead to is taken for what the app named.
func TestLinksAreFollowed(t *testing.T) {
	links := map[string]string{
		"out/link": "/tmp", "out/up": "../docs", "out/file": "/tmp/x", "out/host": "/home/u/project/docs", "out/chain": "up/a/..", "out/loop": "loop",
	}
	for _, c := range []struct {
		path, object string
		place        string // "" if the record is about something else
		fix          string
	}{
		{"/workspace/out/link/x", "/tmp", "/tmp/x", `"filesystem:write:/tmp"`},
		{"out/link/x", "/tmp", "/tmp/x", `"filesystem:write:/tmp"`},
		{"/workspace/out/file", "/tmp", "/tmp/x", `"filesystem:write:/tmp"`},
		{"/workspace/out/up/a/b", "/workspace/docs/a", "/workspace/docs/a/b", `"filesystem:write:/workspace/docs/a"`},
		{"/home/u/project/out/up/x", "/home/u/project/docs", "/workspace/docs/x", `"filesystem:write:/workspace/docs"`},
		{"/workspace/out/host/x", "/workspace/docs", "/workspace/docs/x", `"filesystem:write:/workspace/docs"`},
		{"/workspace/out/chain/x", "/workspace/docs", "/workspace/docs/x", `"filesystem:write:/workspace/docs"`},
		{"/workspace/out/link/x", "/run", "", ""},
		{"/workspace/out/plain/x", "/tmp", "", ""},
		{"/workspace/out/loop/x", "/tmp", "", ""},
	} {
		ctx := testContext()
		ctx.Readlink = func(s Share, rel string) (string, bool) {
			target, ok := links[rel]
			return target, ok && s.Path == "/workspace"
		}
		ctx.Records = Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: c.object, Exit: -13}}}
		d, ok := Explain(ctx, system("open", c.path, "EACCES", "write"))
		if !ok {
			t.Fatalf("%s is not explained", c.path)
		}
		led := strings.Contains(d.Denied, ", which leads to "+c.place) && strings.Contains(d.By, string(Recorded)) && strings.Contains(d.Fix, c.fix)
		if c.place != "" && !led || c.place == "" && (strings.Contains(d.Denied, "leads to") || strings.Contains(d.By, ", "+string(Recorded))) {
			t.Errorf("%s with a record of %s:\n%s", c.path, c.object, d)
		}
	}
}

// TestNeeded has every right that Landlock knows.
func TestNeeded(t *testing.T) {
	for _, c := range []struct{ blocker, object, want string }{
		{"fs.read_file", "/workspace/a/f", "filesystem:read:/workspace/a"},
		{"fs.read_dir", "/workspace/a", "filesystem:read:/workspace/a"},
		{"fs.write_file", "/tmp/f", "filesystem:write:/tmp"},
		{"fs.truncate", "/workspace/a/f", "filesystem:write:/workspace/a"},
		{"fs.remove_file", "/workspace/a", "filesystem:write:/workspace/a"},
		{"fs.remove_dir", "/workspace", "filesystem:write:/workspace"},
		{"fs.make_reg", "/tmp", "filesystem:write:/tmp"},
		{"fs.make_dir", "/tmp", "filesystem:write:/tmp"},
		{"fs.make_sym", "/tmp", "filesystem:write:/tmp"},
		{"fs.make_fifo", "/tmp", "filesystem:write:/tmp"},
		{"fs.make_sock", "/tmp", "filesystem:write:/tmp"},
		{"fs.refer", "/workspace/a", "filesystem:write:/workspace/a"},
		{"fs.make_reg", "/tmp/a b/c", "filesystem:write:/tmp/a b/c"},
		{"fs.make_reg", "/tmp/a/b\nc/d", "filesystem:write:/tmp/a"}, // no manifest can name it
		{"fs.make_reg", "/workspace/*/\"", "filesystem:write:/workspace"},
		{"fs.make_reg", "/run", ""},
		{"fs.make_reg", "/app", ""},
		{"fs.make_char", "/tmp", ""},
		{"fs.make_block", "/tmp", ""},
		{"fs.execute", "/workspace/a/f", ""},
		{"fs.resolve_unix", "/workspace/s", ""},
		{"fs.ioctl_dev", "/dev/ptmx", "terminal:attach:*"},
		{"fs.ioctl_dev", "/dev/pts/0", "terminal:attach:*"},
		{"fs.ioctl_dev", "/dev/null", ""},
		{"net.bind_tcp", ":80", "network:bind:80"},
		{"net.bind_udp", "127.0.0.1:53", "network:bind:53"},
		{"net.bind_udp", ":0", ""},
		{"net.connect_tcp", "127.0.0.1:80", "network:connect:80"},
		{"net.connect_send_udp", "[::1]:53", "network:connect:53"},
		{"scope.signal", "pid 7", ""},
		{"scope.abstract_unix_socket", "", ""},
		{"ptrace", "pid 7", ""},
		{"fs.something_new", "/run", ""},
		{"fs.something_new", "/tmp/x", ""},
	} {
		n := Needed([]string{c.blocker}, c.object)
		if n.Capability != c.want || (n.Because == "") != (c.want != "") {
			t.Errorf("%s on %s needs %+v, want %q", c.blocker, c.object, n, c.want)
		}
	}
	if n := Needed([]string{"fs.write_file", "fs.read_file"}, "/tmp/f"); n.Capability != "filesystem:write:/tmp" {
		t.Errorf("%+v", n)
	}
	if n := Needed([]string{"fs.read_file", "fs.execute"}, "/tmp/f"); n.Capability != "" {
		t.Errorf("%+v", n)
	}
}

// TestWorkerIsNamed: what a worker was refused is allowed beside its export.
func TestWorkerIsNamed(t *testing.T) {
	c := testContext()
	c.Worker = "read_file"
	d, _ := Explain(c, system("open", "/workspace/docs/a", "EACCES", "write"))
	if !strings.Contains(d.By, `app "filesystem", worker "read_file"`) || !strings.Contains(d.Fix, `to the capabilities of export "read_file" (and of the app) in apps/filesystem/berth.yml`) {
		t.Errorf("%s", d)
	}
}

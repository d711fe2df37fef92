package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/tools/testenv"
	"golang.org/x/sys/unix"
)

// childRole in the environment makes the test program a member of the group.
const childRole = "BERTH_CGROUP_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(member(role))
	}
	os.Exit(m.Run())
}

// member joins through the descriptors from 3 on, as the enforcer does.
func member(role string) int {
	n, _ := strconv.Atoi(os.Getenv("FDS"))
	for fd := 3; fd < 3+n; fd++ {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	switch role {
	case "eat":
		for total := 0; total < 256; total += 8 {
			b := make([]byte, 8<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
		}
	case "fork":
		for i := range 200 {
			if err := exec.Command("/bin/sleep", "1000").Start(); err != nil {
				fmt.Println("refused after", i, err)
				return 0
			}
		}
		fmt.Println("not refused")
	case "wait":
		fmt.Println("ready")
		select {}
	}
	return 0
}

var held [][]byte

func (g *Group) command(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childRole + "=" + role, fmt.Sprintf("FDS=%d", len(g.Procs()))}
	cmd.ExtraFiles = g.Procs()
	return cmd
}

// create makes a group on this machine or says why there is none to be had.
func create(t *testing.T, l policy.Limits) *Group {
	t.Helper()
	if os.Getuid() != 0 {
		testenv.Skip(t, "cgroups are for root")
	}
	g, err := Create(fmt.Sprintf("berth-test-%d-%s", os.Getpid(), t.Name()), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dirs := g.dirs
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		for _, dir := range dirs {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s is left behind: %v", dir, err)
			}
		}
	})
	if len(g.Missing) > 0 {
		t.Fatalf("missing on this machine: %q", g.Missing)
	}
	return g
}

// TestMemory eats more than the limit allows, and, as control, the same amount
// under a limit that allows it.
func TestMemory(t *testing.T) {
	g := create(t, policy.Limits{MemoryMB: 64})
	cmd := g.command("eat")
	out, err := cmd.CombinedOutput()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || status.Signal() != unix.SIGKILL {
		t.Errorf("256 MiB under a limit of 64: %v, want SIGKILL\n%s", cmd.ProcessState, out)
	}
	if n := OOMKills(g.Dirs()); n == 0 {
		t.Error("the kernel counts no process killed for its memory")
	}
}

func TestMemoryControl(t *testing.T) {
	g := create(t, policy.Limits{MemoryMB: 512})
	if out, err := g.command("eat").CombinedOutput(); err != nil {
		t.Errorf("256 MiB under a limit of 512: %v\n%s", err, out)
	}
	if n := OOMKills(g.Dirs()); n != 0 {
		t.Errorf("%d processes were killed for their memory", n)
	}
}

// TestPids starts more processes than are allowed. What did start is killed
// when the group is removed.
func TestPids(t *testing.T) {
	g := create(t, policy.Limits{Pids: 32})
	out, err := g.command("fork").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "refused after") {
		t.Errorf("%v %s, want a refusal", err, out)
	}
	if n := processes(t, g); n == 0 {
		t.Error("nothing is running that removal could kill")
	}
}

func processes(t *testing.T, g *Group) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(raw)))
}

// TestKill ends what is in the group and nothing else.
func TestKill(t *testing.T) {
	g := create(t, policy.Limits{CPUMilli: 500, MemoryMB: 64, Pids: 32})
	inside := g.command("wait")
	outside := exec.Command("/bin/sleep", "1000")
	out, err := inside.StdoutPipe()
	if err == nil {
		err = inside.Start()
	}
	if err == nil {
		err = outside.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Process.Kill()
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	inside.Wait()
	if status := inside.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGKILL {
		t.Errorf("inside: %v, want SIGKILL", inside.ProcessState)
	}
	if err := outside.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("outside: %v, want it alive", err)
	}
}

// fake is a hierarchy made of ordinary files.
func fake(t *testing.T, dir string, files ...string) string {
	t.Helper()
	dir = filepath.Join(t.TempDir(), dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var limits = policy.Limits{CPUMilli: 1500, MemoryMB: 64, Pids: 7}

// TestFind reads what three kinds of machines say about themselves.
func TestFind(t *testing.T) {
	for _, c := range []struct{ name, mounts, own, want string }{
		{"v2", "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "0::/user.slice\n",
			"{map[] /sys/fs/cgroup}"},
		{"v1", `31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
`, "3:cpu,cpuacct:/\n2:memory:/a/b\n1:pids:/x\n",
			"{map[cpu:/sys/fs/cgroup/cpu,cpuacct memory:/sys/fs/cgroup/memory/a/b pids:/sys/fs/cgroup/pids/x] }"},
		{"hybrid", `31 30 0:27 / /c/memory rw - cgroup none rw,memory
34 30 0:30 / /c/unified rw - cgroup2 cgroup2 rw
`, "2:memory:/\n0::/\n", "{map[memory:/c/memory] /c/unified}"},
		{"container, whose own part is mounted", "31 30 0:27 /docker/1 /c/memory ro - cgroup none rw,memory\n", "2:memory:/docker/1/in\n",
			"{map[memory:/c/memory/in] }"},
		{"container, whose part is elsewhere", "31 30 0:27 /docker/1 /c/memory ro - cgroup none rw,memory\n", "2:memory:/other\n",
			"{map[memory:/c/memory] }"},
	} {
		dir := fake(t, "proc", "mountinfo="+c.mounts, "cgroup="+c.own)
		h, err := find(filepath.Join(dir, "mountinfo"), filepath.Join(dir, "cgroup"))
		if got := fmt.Sprint(h); err != nil || got != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.name, err, got, c.want)
		}
	}
	dir := fake(t, "proc", "mountinfo=1 0 0:1 / / rw - tmpfs none rw\n", "cgroup=")
	if _, err := find(filepath.Join(dir, "mountinfo"), filepath.Join(dir, "cgroup")); err == nil {
		t.Error("no hierarchy was found to be one")
	}
}

// TestMissing: what can not be had is named, and with nothing at all to be had
// there is no group.
func TestMissing(t *testing.T) {
	root := fake(t, "cg", "cgroup.controllers=cpuset pids", "cgroup.subtree_control=")
	g, err := (hierarchies{v2: root}).create("app", limits)
	if err == nil {
		t.Errorf("without files to set: %v", g)
	}
	_, err = (hierarchies{}).create("app", limits)
	if err == nil || !strings.Contains(err.Error(), "memory is not limited") || !strings.Contains(err.Error(), "CPU time is not limited") {
		t.Errorf("without a hierarchy: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "/a"} {
		if _, err := (hierarchies{v2: root}).create(name, limits); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
}

// TestControllers keeps what limits come to.
func TestControllers(t *testing.T) {
	want := `[{memory memory [{memory.max 67108864 false} {memory.swap.max 0 true} {memory.oom.group 1 true}] [{memory.limit_in_bytes 67108864 false} {memory.memsw.limit_in_bytes 67108864 true} {memory.kmem.tcp.limit_in_bytes 67108864 true}]} ` +
		`{pids the number of processes [{pids.max 7 false}] [{pids.max 7 false}]} ` +
		`{cpu CPU time [{cpu.max 150000 100000 false}] [{cpu.cfs_period_us 100000 false} {cpu.cfs_quota_us 150000 false}]}]`
	if got := fmt.Sprint(controllers(limits)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := controllers(policy.Limits{}); got != nil {
		t.Errorf("no limits come to %v", got)
	}
}

// TestLimit raises and lowers the limits of a group that exists.
func TestLimit(t *testing.T) {
	g := create(t, policy.Limits{MemoryMB: 64, Pids: 32, CPUMilli: 500})
	for _, l := range []policy.Limits{{MemoryMB: 512, Pids: 64, CPUMilli: 1000}, {MemoryMB: 64, Pids: 16, CPUMilli: 250}, {MemoryMB: 512, Pids: 32, CPUMilli: 500}} {
		if err := g.Limit(l); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if out, err := g.command("eat").CombinedOutput(); err != nil {
		t.Errorf("256 MiB under a limit raised to 512: %v\n%s", err, out)
	}
}

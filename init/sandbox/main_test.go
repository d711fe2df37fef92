package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berthos/berth/init/cgroup"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
	"golang.org/x/sys/unix"
)

// testRole in the environment says what the test program is to be.
const testRole = "BERTH_TEST_ROLE"

// ordinaryID is a uid and gid without any privilege.
const ordinaryID = 12345

func TestMain(m *testing.M) {
	switch os.Getenv(testRole) {
	case "machine":
		machineMain()
		os.Exit(0)
	case "user": // an ordinary user, who makes a user namespace for the machine
		os.Exit(userMain())
	}
	dir, err := os.MkdirTemp("", "berth-programs-")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built holds the programs that tests start, built once each.
var built struct {
	dir string
	mu  sync.Mutex
}

// prebuilt in the environment names a folder with what these tests build
// otherwise: the programs as build names them, and the filters. So they run on
// machines without a Go toolchain: CGO_ENABLED=0 go test -c makes them static.
const prebuilt = "BERTH_TEST_PREBUILT"

// build returns a static program with build tags.
func build(t testing.TB, pkg, tags string) string {
	t.Helper()
	if dir := os.Getenv(prebuilt); dir != "" {
		return filepath.Join(dir, filepath.Base(pkg)+"-"+tags)
	}
	built.mu.Lock()
	defer built.mu.Unlock()
	name := filepath.Join(built.dir, filepath.Base(pkg)+"-"+tags)
	if _, err := os.Stat(name); err == nil {
		return name
	}
	cmd := exec.Command("go", "build", "-tags", tags, "-o", name, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return name
}

func userMain() int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = []string{testRole + "=machine"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// start runs one job on a machine of its own and returns what came of it.
func start(t testing.TB, j job) outcome {
	t.Helper()
	raw, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Stdin = bytes.NewReader(raw)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if j.Spec.Profile == sandbox.ProfileNativeUser {
		cmd.Env = []string{testRole + "=user"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryID, Gid: ordinaryID}}
	} else {
		cmd.Env = []string{testRole + "=machine"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	}
	for _, name := range j.Cgroups {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	err = cmd.Run()
	var o outcome
	if e := json.Unmarshal(stdout.Bytes(), &o); e != nil || err != nil || o.Error != "" {
		t.Fatalf("machine: %v %v %s\n%s\n%s", e, err, o.Error, stdout.String(), stderr.String())
	}
	return o
}

// base is what every machine of the tests is made from.
type base struct {
	dir   string
	share string
	uid   int
}

// newBase builds the programs and lays out a share for one profile.
func newBase(t testing.TB, profile sandbox.Profile, tags string) base {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-enforcer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := base{dir: dir, share: filepath.Join(dir, "share"), uid: 10000}
	if profile == sandbox.ProfileNativeUser {
		b.uid = ordinaryID
	}
	for _, d := range []string{"", "root", "sbin", "seccomp", "open-filter", "torn-filter", "etc", "code", "share"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		os.Chmod(filepath.Join(dir, d), 0o755)
	}
	for _, p := range []struct{ pkg, to, tags string }{
		{"../cmd/agent-init", "sbin/agent-init", tags},
		{"../../tools/attackapp", "code/attackapp", ""},
	} {
		raw, err := os.ReadFile(build(t, p.pkg, p.tags))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, p.to), raw)
		os.Chmod(filepath.Join(dir, p.to), 0o755)
	}
	filters, err := filterFiles()
	if err != nil {
		t.Fatal(err)
	}
	allowAll := []byte{unix.BPF_RET, 0, 0, 0, 0, 0, 0xff, 0x7f}
	for name, raw := range filters {
		write(t, filepath.Join(dir, "seccomp", name), raw)
		write(t, filepath.Join(dir, "open-filter", name), allowAll)
		write(t, filepath.Join(dir, "torn-filter", name), raw[:len(raw)-1])
	}
	write(t, filepath.Join(dir, "etc/passwd"), []byte("app:x:10000:10000::/scratch:\n"))
	os.Chown(b.share, b.uid, b.uid)
	return b
}

func write(t testing.TB, name string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// job returns a job that starts the attack app with args.
func (b base) job(profile sandbox.Profile, args []string, paths ...policy.Path) job {
	p := policy.Policy{
		Schema: 1, App: "attack", Version: "1.0.0", Code: "sha256:0",
		Argv:   append([]string{"/app/attackapp"}, args...),
		Rights: policy.Rights{Class: "base", Paths: paths},
		Limits: policy.Limits{CPUMilli: 1000, MemoryMB: 64, Pids: 64},
	}
	j := job{Base: b.dir, Spec: sandbox.Spec{Profile: profile, UID: uint32(b.uid), GID: uint32(b.uid), Hostname: "attack"}}
	if profile == sandbox.ProfileNativeUser {
		j.Spec.UID, j.Spec.GID = 0, 0
	}
	j.Spec.Shares = []sandbox.Share{{Path: "/workspace", Source: b.share}}
	j.setPolicy(p)
	return j
}

// withCgroup adds what the profile requires: as root, a cgroup.
func (j job) withCgroup(t testing.TB) job {
	t.Helper()
	if j.Spec.Profile == sandbox.ProfileNativeUser {
		return j
	}
	g, err := cgroup.Create(fmt.Sprintf("berth-test-%d-%d", os.Getpid(), groups.Add(1)), policy.Limits{CPUMilli: 1000, MemoryMB: 64, Pids: 64})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Missing) > 0 {
		t.Log("cgroup:", g.Missing)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range g.Procs() {
		j.Cgroups = append(j.Cgroups, f.Name())
	}
	return j
}

// groups numbers the cgroups of this test run.
var groups atomic.Int64

func (j *job) setPolicy(p policy.Policy) {
	raw, err := p.Encode()
	if err != nil {
		panic(err)
	}
	j.Spec.Policy = raw
}

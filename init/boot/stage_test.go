package boot

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/tools/testenv"
)

// stageEnv makes the test binary a machine's stub: it builds a root for PID 1
// in its own namespaces and becomes PID 1.
const stageEnv = "BERTH_TEST_STAGE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(stageEnv); dir != "" {
		fmt.Fprintln(os.Stderr, stage(dir))
		os.Exit(1)
	}
	if n := os.Getenv(orphansEnv); n != "" {
		os.Exit(orphans(n))
	}
	if steps := os.Getenv(doEnv); steps != "" {
		os.Exit(do(steps))
	}
	if n := os.Getenv(deniedEnv); n != "" {
		os.Exit(beDenied(n))
	}
	if os.Getenv(guestEnv) != "" {
		runGuest(m)
	}
	code := m.Run()
	programs.remove()
	os.Exit(code)
}

// stage mounts what a native machine mounts, in little, and runs PID 1 in it.
func stage(dir string) error {
	root := filepath.Join(dir, "root")
	steps := []struct {
		what string
		err  error
	}{
		{"private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")},
		{"root", unix.Mount("tmpfs", root, "tmpfs", 0, "")},
	}
	for _, name := range []string{"proc", "sys", "dev", "run", "tmp", "sbin", "apps", "old"} {
		steps = append(steps, struct {
			what string
			err  error
		}{name, os.Mkdir(filepath.Join(root, name), 0o755)})
	}
	for _, s := range steps {
		if s.err != nil {
			return fmt.Errorf("stage: %s: %w", s.what, s.err)
		}
	}
	for _, err := range []error{
		bind("/dev/null", filepath.Join(root, "dev/null")),
		bind(filepath.Join(dir, "init"), filepath.Join(root, "sbin/init")),
		bind(filepath.Join(dir, "stub"), filepath.Join(root, "sbin/agent-init")),
		unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""),
		unix.PivotRoot(root, filepath.Join(root, "old")),
		os.Chdir("/"),
		unix.Unmount("/old", unix.MNT_DETACH),
	} {
		if err != nil {
			return fmt.Errorf("stage: %w", err)
		}
	}
	return syscall.Exec("/sbin/init", append([]string{"/sbin/init"}, os.Args[1:]...), []string{})
}

func bind(from, to string) error {
	if err := os.WriteFile(to, nil, 0o755); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// programs are init and the stub, built once for all tests.
var programs builtPrograms

type builtPrograms struct {
	once sync.Once
	dir  string
	err  error
}

func (b *builtPrograms) build(t *testing.T) string {
	t.Helper()
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "berth-boot"); b.err != nil {
			return
		}
		b.err = os.Mkdir(filepath.Join(b.dir, "root"), 0o755)
		for out, pkg := range map[string]string{"init": "github.com/berthos/berth/init/cmd/init", "stub": "./testdata/stub"} {
			// The flags are those of the image.
			args := append([]string{"build"}, strings.Fields(os.Getenv("BERTH_TEST_BUILDFLAGS"))...)
			cmd := exec.Command("go", append(args, "-trimpath", "-ldflags=-s -w -buildid=", "-o", filepath.Join(b.dir, out), pkg)...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if msg, err := cmd.CombinedOutput(); err != nil && b.err == nil {
				b.err = fmt.Errorf("cannot build %s: %w\n%s", pkg, err, msg)
			}
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

func (b *builtPrograms) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// native is PID 1 in namespaces of this host.
type native struct {
	*hostEnd
	cmd    *exec.Cmd
	stderr *lockedBuffer
	ended  chan error
}

// lockedBuffer collects what a program prints.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launchNative starts PID 1 with files from descriptor 3; the first is its link.
func launchNative(t *testing.T, files []*os.File, args ...string) *native {
	t.Helper()
	n := &native{stderr: &lockedBuffer{}, ended: make(chan error, 1)}
	n.cmd = exec.Command("/proc/self/exe", args...)
	n.cmd.Env = append(os.Environ(), stageEnv+"="+programs.build(t))
	n.cmd.Stderr = n.stderr
	n.cmd.ExtraFiles = files
	n.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if args[0] != string(sandbox.ProfileNativeRoot) {
		n.cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		n.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		n.cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := n.cmd.Start(); err != nil {
		testenv.Skipf(t, "cannot make namespaces here: %v", err)
	}
	go func() { n.ended <- n.cmd.Wait() }()
	t.Cleanup(func() {
		_ = n.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("stderr:\n%s", n.stderr)
		}
	})
	return n
}

// profile is what this user may try: all separations as root, else fewer.
func profile() string {
	if os.Geteuid() == 0 {
		return string(sandbox.ProfileNativeRoot)
	}
	return string(sandbox.ProfileNativeUser)
}

// bootNative starts PID 1 and does the handshake.
func bootNative(t *testing.T, profile string) *native {
	t.Helper()
	ours, theirs := connected(t)
	n := launchNative(t, []*os.File{theirs}, profile, "{}")
	_ = theirs.Close()
	n.hostEnd = meet(t, ours, nil)
	return n
}

func asConn(f *os.File) (link.Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// connected returns a unix connection and its other end as a file.
func connected(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	ours, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	return ours, theirs
}

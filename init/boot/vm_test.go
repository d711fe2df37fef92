package boot

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugelgupf/p9/fsimpl/localfs"
	"github.com/hugelgupf/p9/p9"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testvm"
)

// guestVM is PID 1 in a real VM, booted from an initramfs that holds nothing
// but it and the stub, and seen from the host's end of the link.
type guestVM struct {
	*hostEnd
	cmd     *exec.Cmd
	console *lockedBuffer
	ended   chan error
}

// testKernel finds a built kernel, or skips.
func testKernel(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BERTH_TEST_KERNEL")
	if path == "" {
		path = filepath.Join("..", "..", "build", "image", "vmlinux")
	}
	if _, err := os.Stat(path); err != nil {
		testenv.Skip(t, "no kernel to boot: run make image, or set BERTH_TEST_KERNEL")
	}
	if _, err := exec.LookPath(testvm.QEMU); err != nil {
		testenv.Skip(t, "no qemu-system-x86_64: install qemu-system-x86")
	}
	return path
}

// initramfs writes the smallest root that PID 1 can boot from.
func initramfs(t *testing.T) string {
	t.Helper()
	files := map[string][]byte{}
	for name, program := range map[string]string{"init": "init", "sbin/agent-init": "stub"} {
		b, err := os.ReadFile(filepath.Join(programs.build(t), program))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	raw, err := testvm.Initramfs([]string{"proc", "sys", "dev", "run", "tmp", "sbin"}, files)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initramfs")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startVM starts QEMU, with words for init's command line, and returns the
// other end of the link once QEMU has opened it.
func startVM(t *testing.T, words string) (*guestVM, *net.UnixConn) {
	t.Helper()
	kernel, initrd := testKernel(t), initramfs(t)
	socket := filepath.Join(t.TempDir(), "link")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	vm := &guestVM{console: &lockedBuffer{}, ended: make(chan error, 1)}
	vm.cmd = testvm.Machine{Kernel: kernel, Initrd: initrd, Link: socket, Words: words}.Command(context.Background())
	vm.cmd.Stdout, vm.cmd.Stderr = vm.console, vm.console
	if err := vm.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { vm.ended <- vm.cmd.Wait() }()
	t.Cleanup(func() {
		_ = vm.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("console:\n%s", vm.console)
		}
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return vm, conn.(*net.UnixConn)
}

func bootVM(t *testing.T, serve func(*link.Stream)) *guestVM {
	t.Helper()
	vm, conn := startVM(t, "vm")
	vm.hostEnd = meet(t, conn, serve)
	return vm
}

// wait sees QEMU end by itself and in order.
func (vm *guestVM) wait() {
	vm.t.Helper()
	select {
	case err := <-vm.ended:
		if err != nil {
			vm.t.Errorf("QEMU: %v", err)
		}
	case <-time.After(deadline):
		vm.t.Error("QEMU does not end")
	}
}

// startStub starts an enforcer that enforces nothing, which is refused: the
// kernel has recorded none of its denials. Only as one that leaves the canaries
// out, as the test image's can, it runs.
func (vm *guestVM) startStub(app string, args ...string) {
	vm.t.Helper()
	s := request(vm.t, app, args...)
	if f := failing(vm.t, &native{hostEnd: vm.hostEnd}, s); f.Step != sandbox.StepRecords || !strings.Contains(f.Reason, "recorded none of the canaries") {
		vm.t.Errorf("a stub that enforces nothing failed with %+v", f)
	}
	s.Ablate = []string{sandbox.StepCanaries}
	vm.startAs(s)
}

func TestVM(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("from the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	vm := bootVM(t, func(s *link.Stream) { _ = p9.NewServer(localfs.Attacher(dir)).Handle(s, s) })
	vm.boot(link.Boot{Hostname: "sandbox", ABI: 11, Shares: []link.Share{{Name: "w", Path: "/workspace", Source: "9p"}}})
	t.Logf("booted: %+v", *vm.booted)
	for _, s := range vm.steps {
		t.Logf("%10.3f ms  %s", float64(s.Nanos)/1e6, s.Name)
		if s.Error != "" {
			t.Errorf("step %s: %s", s.Name, s.Error)
		}
	}
	vm.startStub("a")
	for path, want := range map[string]string{
		"/proc/sys/kernel/yama/ptrace_scope": "3\n",
		"/proc/sys/vm/memfd_noexec":          "2\n",
		"/run/berth/shares/w/hello":          "from the host",
	} {
		wanted, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := vm.call("a", "read", `"`+path+`"`); got != string(wanted) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := vm.call("a", "write", `"/run/berth/shares/w/hello"`); got != "null" {
		t.Error(got)
	}
	vm.shutdown()
	vm.wait()
	if got, err := os.ReadFile(filepath.Join(dir, "hello")); err != nil || string(got) != "x" {
		t.Errorf("the host sees %q, %v", got, err)
	}
}

func TestVMEndsWithTheLink(t *testing.T) {
	vm := bootVM(t, nil)
	vm.boot(link.Boot{Hostname: "sandbox"})
	vm.startStub("a", "stubborn")
	_ = vm.session.Close()
	vm.wait()
}

func TestVMTellsAFatalStepAndEnds(t *testing.T) {
	vm := bootVM(t, nil)
	stream, err := vm.session.OpenStream(link.StreamHeader{Type: link.StreamControl})
	if err != nil {
		t.Fatal(err)
	}
	vm.control = link.NewControl(stream)
	vm.send(link.Control{Boot: &link.Boot{ABI: 99}})
	if got := vm.failure(); !strings.Contains(got.Reason, "the host expects Landlock ABI 99, this kernel has 11") {
		t.Errorf("%+v", got)
	}
	vm.wait()
	if !strings.Contains(vm.console.String(), "Landlock ABI 99") {
		t.Error("nothing on the console")
	}
}

// TestVMEndsWhenInitDoes has init refuse its arguments: the kernel panics, and
// the machine must end and not hang.
func TestVMEndsWhenInitDoes(t *testing.T) {
	vm, _ := startVM(t, "nonsense")
	vm.hostEnd = &hostEnd{t: t}
	vm.wait()
	if c := vm.console.String(); !strings.Contains(c, `no profile "nonsense"`) || !strings.Contains(c, "Attempted to kill init") {
		t.Errorf("console: %s", c)
	}
}

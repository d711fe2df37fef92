package boot

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"

	"github.com/berthos/berth/init/link"
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
		t.Skip("no kernel to boot: run make image, or set BERTH_TEST_KERNEL")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("no qemu-system-x86_64: install qemu-system-x86")
	}
	return path
}

// initramfs writes the smallest root that PID 1 can boot from.
func initramfs(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	add := func(name string, mode cpio.FileMode, body []byte) {
		h := &cpio.Header{Name: name, Mode: mode, Size: int64(len(body))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "sbin"} {
		add(dir, cpio.TypeDir|0o755, nil)
	}
	for name, program := range map[string]string{"init": "init", "sbin/agent-init": "stub"} {
		b, err := os.ReadFile(filepath.Join(programs.build(t), program))
		if err != nil {
			t.Fatal(err)
		}
		add(name, cpio.TypeReg|0o755, b)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initramfs")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hostKHz is the rate of the host's time stamp counter, about.
func hostKHz() string {
	raw, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			return strings.Replace(strings.TrimSpace(value), ".", "", 1)
		}
	}
	return "1000000"
}

// bootVM starts QEMU and connects to the link's socket.
func bootVM(t *testing.T) *guestVM {
	t.Helper()
	kernel, initrd := testKernel(t), initramfs(t)
	socket := filepath.Join(t.TempDir(), "link")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	vm := &guestVM{console: &lockedBuffer{}, ended: make(chan error, 1)}
	vm.cmd = exec.Command("qemu-system-x86_64",
		"-M", "microvm,acpi=off,isa-serial=on,rtc=on,pit=on,pic=on,x-option-roms=off", "-accel", "tcg", "-cpu", "max,-erms",
		"-m", "256", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd,
		"-device", "virtio-serial-device", "-chardev", "socket,id=link,path="+socket, "-device", "virtserialport,chardev=link,name=berth.link",
		"-append", "console=ttyS0 reboot=t panic=-1 quiet no_timer_check nolapic_timer tsc=reliable tsc_early_khz="+hostKHz()+" vm")
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
	vm.hostEnd = meet(t, conn.(*net.UnixConn))
	return vm
}

func TestVM(t *testing.T) {
	vm := bootVM(t)
	vm.boot(link.Boot{Hostname: "sandbox", ABI: 11})
	t.Logf("booted: %+v", *vm.booted)
	for _, s := range vm.steps {
		t.Logf("%10.3f ms  %s %s", float64(s.Nanos)/1e6, s.Name, s.Error)
	}
	vm.start("a", "vm")
	if got := vm.call("a", "read", `"/proc/sys/kernel/yama/ptrace_scope"`); got != `"3\n"` {
		t.Errorf("ptrace_scope is %s", got)
	}
	vm.shutdown()
	if err := <-vm.ended; err != nil {
		t.Errorf("QEMU: %v", err)
	}
}

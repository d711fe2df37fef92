package sandbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"

	"github.com/berthos/berth/tools/testenv"
)

// TestGuest runs all the other tests of this package on Berth's kernel, in a VM
// that holds nothing else, under the profile vm.
func TestGuest(t *testing.T) {
	if os.Getenv(prebuilt) != "" {
		return // this is the guest
	}
	kernel := os.Getenv("BERTH_TEST_KERNEL")
	if kernel == "" {
		kernel = filepath.Join("..", "..", "build", "image", "vmlinux")
	}
	if _, err := os.Stat(kernel); err != nil {
		testenv.Skip(t, "no kernel to boot: run make image, or set BERTH_TEST_KERNEL")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		testenv.Skip(t, "no qemu-system-x86_64: install qemu-system-x86")
	}
	cmd := exec.Command("qemu-system-x86_64",
		"-M", "microvm,acpi=off,isa-serial=on,rtc=on,pit=on,pic=on,x-option-roms=off", "-accel", "tcg", "-cpu", "max,-erms,-bmi2",
		"-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initramfs(t),
		"-append", "console=ttyS0 reboot=t panic=-1 quiet no_timer_check nolapic_timer tsc=reliable tsc_early_khz="+kilohertz(t)+" -- -test.v -test.timeout=30m")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := 0
	for line := range strings.Lines(strings.ReplaceAll(string(out), "\r", "")) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "--- PASS"):
			passed++
		case strings.Contains(trimmed, "_test.go:"):
			t.Log(trimmed)
		}
	}
	if passed == 0 || !strings.Contains(string(out), "guest: tests ended: <nil>") {
		t.Errorf("the guest's tests failed\n%s", out)
	}
	t.Logf("%d tests passed in the guest", passed)
}

// initramfs packs the tests, made static, with what they would build.
func initramfs(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	add := func(name string, mode cpio.FileMode, body []byte) {
		if err := w.WriteHeader(&cpio.Header{Name: name, Mode: mode, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"proc", "newroot", "pre", "dev"} {
		add(dir, cpio.TypeDir|0o755, nil)
	}
	tests := filepath.Join(t.TempDir(), "sandbox.test")
	compile := exec.Command("go", "test", "-c", "-o", tests, ".")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, from := range map[string]string{
		"init": build(t, "./testdata/guest", ""), "pre/sandbox.test": tests,
		"pre/agent-init-": build(t, "../cmd/agent-init", ""), "pre/agent-init-ablation": build(t, "../cmd/agent-init", "ablation"),
		"pre/attackapp-": build(t, "../../tools/attackapp", ""),
	} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		add(name, cpio.TypeReg|0o755, raw)
	}
	filters, err := filterFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range filters {
		add("pre/"+name, cpio.TypeReg|0o644, raw)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initramfs")
	write(t, path, b.Bytes())
	return path
}

// kilohertz is the rate of the host's time stamp counter, about.
func kilohertz(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			return strings.Replace(strings.TrimSpace(value), ".", "", 1)
		}
	}
	t.Fatal("the rate of the time stamp counter is not in /proc/cpuinfo")
	return ""
}

package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testvm"
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
	if _, err := exec.LookPath(testvm.QEMU); err != nil {
		testenv.Skip(t, "no qemu-system-x86_64: install qemu-system-x86")
	}
	words := "-- -test.v -test.timeout=30m"
	if only := os.Getenv("BERTH_TEST_GUEST_RUN"); only != "" {
		words += " -test.run=" + only
	}
	cmd := testvm.Machine{Kernel: kernel, Initrd: initramfs(t), MemoryMB: 512, Words: words}.Command(t.Context())
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
	tests := filepath.Join(t.TempDir(), "sandbox.test")
	compile := exec.Command("go", "test", "-c", "-o", tests, ".")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := map[string][]byte{}
	for name, from := range map[string]string{
		"init": build(t, "./testdata/guest", ""), "pre/sandbox.test": tests,
		"pre/agent-init-": build(t, "../cmd/agent-init", ""), "pre/agent-init-ablation": build(t, "../cmd/agent-init", "ablation"),
		"pre/attackapp-": build(t, "../../tools/attackapp", ""), "pre/askapp-": build(t, "../../tools/askapp", ""),
	} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = raw
	}
	filters, err := filterFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range filters {
		files["pre/"+name] = raw
	}
	raw, err := testvm.Initramfs([]string{"proc", "newroot", "pre", "dev"}, files)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initramfs")
	write(t, path, raw)
	return path
}

package qemu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/berthos/berth/host/hint"
)

// programs name QEMU's program and Debian package for an image's architecture.
var programs = map[string]struct{ program, pkg string }{
	"x86_64": {"qemu-system-x86_64", "qemu-system-x86"},
}

// usual are folders that may be missing from the PATH of a program that a
// desktop started.
var usual = []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin"}

// Find returns QEMU's absolute path.
func Find(arch string) (string, error) {
	p, ok := programs[arch]
	if !ok {
		return "", hint.Errorf("use --machine native", "cannot use machine qemu: it does not boot %s images yet", arch)
	}
	path, err := exec.LookPath(p.program)
	for _, dir := range usual {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, p.program))
	}
	if err != nil {
		return "", hint.Errorf("sudo apt-get install "+p.pkg+" (elsewhere the package is often called qemu)", "cannot use machine qemu: %s is not installed", p.program)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("cannot use machine qemu: %w", err)
	}
	return path, nil
}

// Version asks QEMU for its version.
func Version(path string) (string, error) {
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("cannot ask %s for its version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(line, "QEMU emulator version "), nil
}

// HasKVM says why this process cannot even try KVM, or nil.
func HasKVM() error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return nil
	case os.IsPermission(err):
		return hint.Errorf("sudo usermod -aG kvm $USER, then log in again", "cannot use KVM: %w", err)
	default:
		return hint.Errorf("turn virtualization on in the firmware; in a virtual machine, ask for nested virtualization", "cannot use KVM: %w", err)
	}
}

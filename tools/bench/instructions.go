package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/cavaliergopher/cpio"
)

// tuning removes timer calibration, which depends on the emulator and not on
// the kernel; the counter runs at 1 GHz, so that it counts instructions.
const tuning = "console=ttyS0 reboot=t panic=-1 quiet no_timer_check nolapic_timer tsc=reliable tsc_early_khz=1000000"

var tscLine = regexp.MustCompile(`TSC (\d+)`)

// instructions boots kernel with the one-program initramfs and returns how many
// instructions the guest executed from reset to its PID 1.
func instructions(ctx context.Context, kernel, initrd string) (uint64, error) {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-M", "microvm,acpi=off,isa-serial=on,rtc=on,pit=on,pic=on", "-accel", "tcg", "-cpu", "max", "-m", "256",
		"-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm", "-seed", "1",
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd, "-append", tuning)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("cannot boot %s: %w: %s", kernel, err, out)
	}
	m := tscLine.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("cannot boot %s: its PID 1 printed no counter: %s", kernel, out)
	}
	return strconv.ParseUint(string(m[1]), 10, 64)
}

// initramfs writes an initramfs whose /init is the counter program.
func initramfs(ctx context.Context, dir string) (string, error) {
	init := filepath.Join(dir, "tscinit")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", init, "./tools/bench/tscinit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build tscinit: %w: %s", err, out)
	}
	raw, err := os.ReadFile(init)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "initramfs.cpio")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	w := cpio.NewWriter(f)
	for _, h := range []cpio.Header{
		{Name: "dev", Mode: cpio.TypeDir | 0o755},
		{Name: "init", Mode: cpio.TypeReg | 0o755, Size: int64(len(raw))},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return "", err
		}
		if h.Name == "init" {
			if _, err := w.Write(raw); err != nil {
				return "", err
			}
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return name, f.Close()
}

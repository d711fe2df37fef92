package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/berthos/berth/tools/testvm"
)

var tscLine = regexp.MustCompile(`TSC (\d+)`)

// instructions boots kernel with the one-program initramfs and returns how many
// instructions the guest executed from reset to its PID 1.
func instructions(ctx context.Context, kernel, initrd string) (uint64, error) {
	cmd := testvm.Machine{
		Kernel: kernel, Initrd: initrd,
		KHz:     1_000_000, // 1 GHz of virtual time: the counter counts instructions
		Devices: []string{"-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm", "-seed", "1"},
	}.Command(ctx)
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
	packed, err := testvm.Initramfs([]string{"dev"}, map[string][]byte{"init": raw})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "initramfs.cpio")
	return name, os.WriteFile(name, packed, 0o644)
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// cloudPackage is the peer: Debian's kernel for virtual machines.
const cloudPackage = "linux-image-cloud-amd64"

// cloudKernel fetches Debian's cloud kernel with the machine's own apt, which
// checks its signature, and returns the kernel's file and version.
func cloudKernel(ctx context.Context, dir string) (file, version string, err error) {
	name, err := dependency(ctx, cloudPackage)
	if err != nil {
		return "", "", err
	}
	version = strings.TrimPrefix(name, "linux-image-")
	file = filepath.Join(dir, name, "boot", "vmlinuz-"+version)
	if _, err := os.Stat(file); err == nil {
		return file, version, nil
	}
	tmp, err := os.MkdirTemp(dir, "cloud-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(tmp)
	if err := command(ctx, tmp, "apt-get", "download", "-q", name); err != nil {
		return "", "", err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", "", fmt.Errorf("cannot find the package that apt-get fetched: %v", debs)
	}
	if err := command(ctx, tmp, "dpkg-deb", "-x", debs[0], "x"); err != nil {
		return "", "", err
	}
	if err := os.Rename(filepath.Join(tmp, "x"), filepath.Join(dir, name)); err != nil {
		return "", "", err
	}
	return file, version, nil
}

// dependency returns the one package of a given version that a metapackage names.
func dependency(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", name).Output()
	if err != nil {
		return "", fmt.Errorf("cannot look up package %s (run apt-get update): %w", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "Depends: "); ok {
			first, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return first, nil
		}
	}
	return "", fmt.Errorf("cannot find what package %s depends on", name)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

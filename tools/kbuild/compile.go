package kbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Files of a result beside the kernel itself.
const (
	configFile = "kernel.config"
	mapFile    = "System.map"
	inputsFile = "build.json"
)

// KernelFile is the name of the file a machine boots.
func KernelFile(arch string) string {
	if arch == "arm64" {
		return "Image"
	}
	return "vmlinux"
}

// built is where make leaves it.
func built(arch string) string {
	if arch == "arm64" {
		return "arch/arm64/boot/Image"
	}
	return "vmlinux"
}

// buildEnv is the whole environment of every program a build runs: nothing of
// the caller's but where programs are.
func buildEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"LC_ALL=C", "TZ=UTC",
		"KBUILD_BUILD_TIMESTAMP=2026-01-01 00:00:00 UTC",
		"KBUILD_BUILD_USER=berth", "KBUILD_BUILD_HOST=berth", "KBUILD_BUILD_VERSION=1",
	}
}

func (b *build) compile(ctx context.Context, t tree) error {
	b.say(fmt.Sprintf("compiling with %d jobs: %s", b.jobs, b.toolchain.Compiler))
	target := filepath.Base(built(b.arch))
	if err := b.runMake(ctx, t, fmt.Sprintf("-j%d", b.jobs), target); err != nil {
		return fmt.Errorf("cannot compile the kernel: %w", err)
	}
	return nil
}

// runMake runs make in the kernel's source. If it fails, the error carries what
// it said last.
func (b *build) runMake(ctx context.Context, t tree, args ...string) error {
	args = append([]string{"-C", t.src, "O=" + t.obj, "ARCH=" + b.arch, "CROSS_COMPILE=" + cross(b.arch)}, args...)
	cmd := exec.CommandContext(ctx, "make", args...)
	cmd.Env = buildEnv()
	out := &progress{say: b.say, told: time.Now()}
	cmd.Stdout, cmd.Stderr = out, out
	// make's children are many; a group can be ended as one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; it said:\n%s", cmd.Args[len(cmd.Args)-1], err, out.tail())
	}
	return nil
}

// install strips the kernel (the ELF notes that make it bootable by PVH are
// loaded and stay) and puts the result into out.
func (b *build) install(ctx context.Context, t tree, out string) error {
	from, to := filepath.Join(t.obj, built(b.arch)), filepath.Join(out, KernelFile(b.arch))
	err := copyFile(from, to)
	if err == nil && b.arch == "x86_64" {
		err = pipeline(exec.CommandContext(ctx, "strip", "-s", to))
	}
	for from, to := range map[string]string{".config": configFile, "System.map": mapFile} {
		if err == nil {
			err = copyFile(filepath.Join(t.obj, from), filepath.Join(out, to))
		}
	}
	if err == nil {
		err = b.writeInputs(filepath.Join(out, inputsFile))
	}
	if err != nil {
		return fmt.Errorf("cannot keep the kernel: %w", err)
	}
	return nil
}

func (b *build) writeInputs(path string) error {
	text, err := json.MarshalIndent(b.inputs(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// progress turns make's output into a line now and then, and keeps its end.
type progress struct {
	say   func(string)
	line  bytes.Buffer
	last  []string
	errs  []string
	files int
	told  time.Time
}

// kept is how many lines of output an error shows.
const kept = 15

func (p *progress) Write(b []byte) (int, error) {
	p.line.Write(b)
	for {
		line, err := p.line.ReadString('\n')
		if err != nil {
			p.line.WriteString(line)
			return len(b), nil
		}
		p.take(strings.TrimRight(line, "\n"))
	}
}

func (p *progress) take(line string) {
	if p.last = append(p.last, line); len(p.last) > kept {
		p.last = p.last[1:]
	}
	// Other compilers go on for a while after the first has failed.
	if strings.Contains(line, "rror") && !strings.HasPrefix(line, "  ") && len(p.errs) < kept {
		p.errs = append(p.errs, line)
	}
	if !strings.HasPrefix(line, "  CC ") && !strings.HasPrefix(line, "  AS ") {
		return
	}
	p.files++
	if now := time.Now(); now.Sub(p.told) > 10*time.Second {
		p.told = now
		p.say(fmt.Sprintf("%d files compiled", p.files))
	}
}

func (p *progress) tail() string {
	return strings.Join(append(p.errs, p.last...), "\n")
}

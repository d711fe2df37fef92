// Package appbuild owns the way from an app's folder to what a sandbox starts:
// it builds the code, packs the app image and compiles the policy.
package appbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/policy"
)

// ManifestName is the manifest's name in an app's folder.
const ManifestName = "berth.yml"

// EnvOut names the variable that tells a build command where its results go.
const EnvOut = "BERTH_OUT"

// App is a built app.
type App struct {
	Manifest manifest.Manifest
	File     string // path of the manifest
	Policy   policy.Policy
	Encoded  []byte // policy.Encode: what the guest parses
	Image    []byte // the app image, whose digest is Policy.Code
	Notes    []compile.Note
}

// Read parses the manifest of the app in dir.
func Read(dir string) (manifest.Manifest, string, error) {
	file := filepath.Join(dir, ManifestName)
	raw, err := readLimited(file, manifest.MaxBytes)
	if errors.Is(err, os.ErrNotExist) {
		return manifest.Manifest{}, file, hint.Errorf("run berth in the folder of an app, or name the folder", "cannot find %s in %s", ManifestName, dir)
	}
	if err != nil {
		return manifest.Manifest{}, file, err
	}
	m, err := manifest.Parse(file, raw)
	return m, file, err
}

// ReadFile reads the bytes of a manifest.
func ReadFile(name string) ([]byte, error) { return readLimited(name, manifest.MaxBytes) }

// readLimited reads a regular file of at most max bytes.
func readLimited(name string, max int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a fifo must not hold us up
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, errors.Unwrap(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("cannot read %s: it is not a regular file", name)
	}
	raw, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if int64(len(raw)) > max {
		return nil, fmt.Errorf("cannot read %s: more than %d KiB", name, max>>10)
	}
	return raw, nil
}

// Build builds the app in dir. What its build command prints goes to log.
func Build(ctx context.Context, dir string, log io.Writer) (*App, error) {
	m, file, err := Read(dir)
	if err != nil {
		return nil, err
	}
	// A manifest that cannot be started should say so before a long build.
	if _, _, err := compile.Compile(m, Unbuilt); err != nil {
		return nil, err
	}
	stage, err := os.MkdirTemp("", "berth-app-")
	if err != nil {
		return nil, hint.Errorf("set TMPDIR to a folder of your own", "cannot build app %q: %w", m.Name, err)
	}
	defer os.RemoveAll(stage)
	if err := build(ctx, m, dir, stage, log); err != nil {
		return nil, err
	}
	raw, err := readLimited(file, manifest.MaxBytes)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(stage, ManifestName), raw, 0o644); err != nil {
		return nil, fmt.Errorf("cannot pack app %q: %w", m.Name, err)
	}
	return pack(m, file, stage)
}

// Unbuilt stands for the digest of an image that is not there yet.
const Unbuilt = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// waitDelay is how long what a killed build left open may hold us up.
const waitDelay = time.Second

// build fills stage by the manifest's command, or as a Go program.
func build(ctx context.Context, m manifest.Manifest, dir, stage string, log io.Writer) error {
	argv, env := m.Build, os.Environ()
	if len(argv) == 0 {
		argv = []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", filepath.Join(stage, m.Name), "."}
		env = append(env, "CGO_ENABLED=0")
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(env, EnvOut+"="+stage)
	cmd.Stdout, cmd.Stderr = log, log
	// What the command started ends with it when the build is interrupted.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	err := cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("cannot build app %q: %w", m.Name, context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrNotFound) {
		return hint.Errorf("install it, or name another command under build: in "+ManifestName, "cannot build app %q: %w", m.Name, err)
	}
	if err != nil {
		return fmt.Errorf("cannot build app %q: %s: %w", m.Name, argv[0], err)
	}
	return nil
}

func pack(m manifest.Manifest, file, stage string) (*App, error) {
	var img bytes.Buffer
	code, _, err := appimage.Build(&img, stage)
	if err != nil {
		return nil, fmt.Errorf("cannot pack app %q: %w", m.Name, err)
	}
	p, notes, err := compile.Compile(m, code)
	if err != nil {
		return nil, err
	}
	encoded, err := p.Encode()
	if err != nil {
		return nil, err
	}
	if err := checkProgram(m, p.Argv[0], stage); err != nil {
		return nil, err
	}
	return &App{Manifest: m, File: file, Policy: p, Encoded: encoded, Image: img.Bytes(), Notes: notes}, nil
}

package appbuild

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/tools/testenv"
)

// app makes the folder of an app whose build runs a shell command.
func app(t *testing.T, command string) string {
	t.Helper()
	dir := t.TempDir()
	text := "name: a\nversion: 1.0.0\nbuild: [sh, -c, '" + command + "']\n"
	if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// static builds a Go program for a processor.
func static(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "bin")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", bin, src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if arch != "" {
		cmd.Env = append(cmd.Env, "GOARCH="+arch)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func TestBuild(t *testing.T) {
	built, err := Build(t.Context(), app(t, "cp "+static(t, "")+" $BERTH_OUT/a"), io.Discard)
	if err != nil || built.Manifest.Name != "a" || len(built.Image) == 0 {
		t.Fatal(built, err)
	}
}

// TestUselessResults: what cannot be executed in a sandbox is named before one
// is started.
func TestUselessResults(t *testing.T) {
	for command, want := range map[string]string{
		"true":                "its build made no /app/a",
		"mkdir $BERTH_OUT/a":  "/app/a is not an executable file",
		"echo > $BERTH_OUT/a": "/app/a is not an executable file",
		"echo > $BERTH_OUT/a; chmod +x $BERTH_OUT/a":   "/app/a is not an ELF executable",
		"cp " + static(t, "riscv64") + " $BERTH_OUT/a": "is built for EM_RISCV",
		"exit 3": "sh: exit status 3",
	} {
		_, err := Build(t.Context(), app(t, command), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}

// TestInterruptedBuild: nothing that a build started outlives it.
func TestInterruptedBuild(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	dir := app(t, "(echo up; exec sleep 1000) & wait")
	go func() {
		_, err := Build(ctx, dir, w) // the pipe is the child's own standard output
		w.Close()
		done <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil { // "up"
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(r); err != nil { // ends when its last writer has
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Build = %v, want the cancellation", err)
	}
}

func TestDynamicProgram(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		testenv.Skip(t, "no /bin/sh")
	}
	_, err = Build(t.Context(), app(t, "cp "+shell+" $BERTH_OUT/a"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "linked dynamically") || hint.Of(err) == "" {
		t.Errorf("%v, want a word about linking and a hint", err)
	}
}

// TestManifestThatCannotBeRead: each is one line.
func TestManifestThatCannotBeRead(t *testing.T) {
	loop, folder := t.TempDir(), t.TempDir()
	if err := os.Symlink(ManifestName, filepath.Join(loop, ManifestName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, ManifestName), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		t.TempDir(): "cannot find berth.yml in ", loop: "too many levels of symbolic links", folder: "it is not a regular file",
	} {
		_, _, err := Read(dir)
		if err == nil || !strings.HasPrefix(err.Error(), "cannot ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

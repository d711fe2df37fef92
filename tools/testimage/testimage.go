// Package testimage gives tests an image of the sources as they are.
package testimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/imagebuild"
)

// Dir returns the folder of an image of kind index.KindImage or index.KindTest,
// built by mkimage unless it is there. What fails to build fails the test: an
// image is never a reason to skip. The folder is shared: do not change it.
func Dir(t testing.TB, kind string) string {
	t.Helper()
	module, err := imagebuild.Module(".")
	if err != nil {
		t.Fatal(err)
	}
	watchSources(t, module)
	b := &image
	if kind == index.KindTest {
		b = &testImage
	}
	b.once.Do(func() { b.dir, b.err = build(t.Context(), module, kind) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

// built is what one test process knows about one kind of image.
type built struct {
	once sync.Once
	dir  string
	err  error
}

var image, testImage built

// build runs mkimage, which is compiled as the Makefile does it: the program is
// an input of the image, so other flags would mean another key in the cache.
func build(ctx context.Context, module, kind string) (string, error) {
	// Not the test's context: the result is for all tests of the process.
	ctx = context.WithoutCancel(ctx)
	unlock, err := lock(filepath.Join(module, "build"))
	if err != nil {
		return "", err
	}
	defer unlock()
	program := filepath.Join(module, "build", "mkimage")
	if err := command(ctx, module, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./tools/mkimage"); err != nil {
		return "", err
	}
	name, out := "image", filepath.Join(module, "build", "image")
	if kind == index.KindTest {
		name, out = "test", filepath.Join(module, "build", "test-image")
	}
	return out, command(ctx, module, program, "-kind", name, "-o", out)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build the image for tests: %s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(output.String()))
	}
	return nil
}

// lock keeps test processes from building at the same time.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot build the image for tests: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot build the image for tests: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot build the image for tests: %w", err)
	}
	return func() { f.Close() }, nil
}

// watched are the folders from which an image is made.
var watched = []string{"apps", "images", "init", "kernel", "release", "rootfs", "sdk", "tools"}

// watchSources looks at every file that an image may depend on. The go command
// notes what a test looks at and takes no result from its cache once any of it
// has changed; the test itself would not notice a new image.
func watchSources(t testing.TB, module string) {
	t.Helper()
	for _, name := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(module, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range watched {
		err := filepath.WalkDir(filepath.Join(module, dir), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				_, err = os.Stat(name)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // another test's file, gone by now
			}
			return err
		})
		if err != nil {
			t.Fatalf("cannot look at the sources of the image: %v", err)
		}
	}
}

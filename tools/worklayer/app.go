package worklayer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/berthos/berth/apps/appimage"
)

// App makes an app image in file: a layer's programs and those of
// tools/workapp, built from the module at the given folder. It returns the
// image's digest and the layer.
func App(ctx context.Context, o Options, module, file string) (digest string, layer Layer, err error) {
	if layer, err = Build(ctx, o); err != nil {
		return "", Layer{}, err
	}
	dir, err := os.MkdirTemp("", "berth-workapp-")
	if err != nil {
		return "", Layer{}, fmt.Errorf("cannot make a folder for an app: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := layer.Unpack(dir); err != nil {
		return "", Layer{}, err
	}
	if err := programs(ctx, module, dir); err != nil {
		return "", Layer{}, err
	}
	out, err := os.Create(file)
	if err != nil {
		return "", Layer{}, fmt.Errorf("cannot write an app: %w", err)
	}
	defer out.Close()
	if digest, _, err = appimage.Build(out, dir); err != nil {
		return "", Layer{}, err
	}
	return digest, layer, out.Close()
}

// programs builds what does the work: in Go, and in C with each C library,
// linked statically and dynamically.
func programs(ctx context.Context, module, dir string) error {
	source := filepath.Join(module, "tools/workapp/c/work.c")
	for _, b := range []struct {
		name string
		args []string
	}{
		{"workapp", []string{"go", "build", "-trimpath", "-ldflags=-s -w"}},
		{"work-static", []string{"gcc", "-O2", "-pthread", "-static"}},
		{"work-dynamic", []string{"gcc", "-O2", "-pthread"}},
		{"work-musl", []string{"musl-gcc", "-O2", "-pthread", "-static"}},
	} {
		program := filepath.Join(dir, b.name)
		args := append(b.args[1:], "-o", program)
		if b.args[0] == "go" {
			args = append(args, "./tools/workapp")
		} else {
			args = append(args, source)
		}
		cmd := exec.CommandContext(ctx, b.args[0], args...)
		cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w: %s", b.name, err, bytes.TrimSpace(out))
		}
		if b.args[0] == "go" {
			continue
		}
		raw, err := os.ReadFile(program)
		if err == nil {
			raw, err = relocate(raw)
		}
		if err == nil {
			err = os.WriteFile(program, raw, 0o755)
		}
		if err != nil {
			return fmt.Errorf("cannot build %s: %w", b.name, err)
		}
	}
	return nil
}

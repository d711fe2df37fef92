package rootbuild

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// GoArch returns Go's name of an architecture of the index.
func GoArch(arch string) (string, error) {
	switch arch {
	case "x86_64":
		return "amd64", nil
	case "arm64":
		return "arm64", nil
	}
	return "", fmt.Errorf("cannot build for architecture %q: there are x86_64 and arm64", arch)
}

// goTool runs the go command with everything fixed that could change its output.
type goTool struct {
	dir string   // where it runs
	env []string // what is set besides the environment of this process
}

// newGoTool compiles static programs for one architecture. GOMODCACHE, GOCACHE
// and GOPROXY remain the user's: they say where things are, not what they are.
func newGoTool(module, arch string) (goTool, error) {
	goarch, err := GoArch(arch)
	if err != nil {
		return goTool{}, err
	}
	return goTool{dir: module, env: []string{
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + goarch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on",
	}}, nil
}

// hostTool compiles programs that run on this machine, with cgo.
func hostTool(module string) goTool {
	return goTool{dir: module, env: []string{"CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on"}}
}

// with returns a copy of g that runs in dir and sets more of the environment.
func (g goTool) with(dir string, env ...string) goTool {
	return goTool{dir: dir, env: append(g.env[:len(g.env):len(g.env)], env...)}
}

// build compiles the main package pkg into the file out.
func (g goTool) build(ctx context.Context, pkg, out string, flags ...string) error {
	args := append([]string{
		"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out,
	}, flags...)
	if _, err := g.run(ctx, append(args, pkg)...); err != nil {
		return fmt.Errorf("cannot compile %s: %w", pkg, err)
	}
	return nil
}

func (g goTool) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), g.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = fmt.Errorf("%w\n%s", err, text)
		}
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// local turns a folder of the module into what the go command takes for one.
func local(folder string) string { return "./" + filepath.ToSlash(folder) }

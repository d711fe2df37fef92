package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mkimage runs the program and returns its exit code and output.
func mkimage(t *testing.T, dir string, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), world{args: args, stdout: &out, stderr: &errs, dir: dir, getenv: func(k string) string { return env[k] }})
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-kind", "release"}, {"-kidn", "test"}, {"build/image"}} {
		code, out, errs := mkimage(t, ".", nil, args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "-kind") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
}

func TestRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		env  map[string]string
		args []string
		want string
	}{
		"outside a checkout": {t.TempDir(), nil, nil, "not inside one of github.com/berthos/berth"},
		"no cache":           {".", nil, nil, "none of BERTH_CACHE, XDG_CACHE_HOME and HOME is set"},
		"cache is a file":    {".", map[string]string{"BERTH_CACHE": file}, nil, "cannot use the build cache " + file},
		"no recipe":          {".", nil, []string{"-cache", t.TempDir(), "-recipe", "images/none.json"}, "cannot read image recipe"},
		"architecture":       {".", nil, []string{"-cache", t.TempDir(), "-arch", "riscv64"}, "riscv64"},
		"sizes of nothing":   {".", nil, []string{"-sizes", "-o", t.TempDir()}, "cannot read digest of image index"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := mkimage(t, c.dir, c.env, c.args...)
			if code != exitFailed || out != "" || !strings.Contains(errs, c.want) {
				t.Errorf("exit %d, stdout %q, stderr %q; want %q", code, out, errs, c.want)
			}
		})
	}
}

package rootbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// FilterProgram is the folder of the program that compiles seccomp filters.
const FilterProgram = "tools/mkseccomp"

// Filters compiles and runs mkseccomp and returns the filters by file name.
// work is an empty folder.
func Filters(ctx context.Context, module, arch, work string) (map[string][]byte, error) {
	program, out := filepath.Join(work, "mkseccomp"), filepath.Join(work, "filters")
	if err := os.Mkdir(out, 0o755); err != nil {
		return nil, fmt.Errorf("cannot compile seccomp filters: %w", err)
	}
	if err := hostTool(module).build(ctx, local(FilterProgram), program); err != nil {
		return nil, err
	}
	if text, err := exec.CommandContext(ctx, program, "-arch", arch, "-o", out).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot compile seccomp filters: %w\n%s", err, text)
	}
	return readFolder(out)
}

func readFolder(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read seccomp filters: %w", err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("cannot read seccomp filters: %w", err)
		}
	}
	if len(files) == 0 {
		return nil, errors.New("cannot compile seccomp filters: mkseccomp wrote none")
	}
	return files, nil
}

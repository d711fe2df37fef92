package appbuild

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
)

// codeDir is where the results of a build appear in the sandbox.
const codeDir = "/app/"

// checkProgram makes sure that a sandbox can execute what was built. The kernel
// would only say "no such file or directory", also of a program that is there
// and whose loader is not.
func checkProgram(m manifest.Manifest, program, stage string) error {
	rel, ok := strings.CutPrefix(program, codeDir)
	if !ok {
		return nil
	}
	file := filepath.Join(stage, filepath.FromSlash(rel))
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return hint.Errorf("the build must put it into $"+EnvOut+" as "+rel, "cannot run app %q: its build made no %s", m.Name, program)
	case err != nil:
		return fmt.Errorf("cannot run app %q: %w", m.Name, err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return hint.Errorf("chmod +x it in the build", "cannot run app %q: %s is not an executable file", m.Name, program)
	}
	f, err := elf.Open(file)
	if err != nil {
		return hint.Errorf("a sandbox has no interpreters: build a static executable", "cannot run app %q: %s is not an ELF executable", m.Name, program)
	}
	defer f.Close()
	return checkELF(m, program, f)
}

// machines are the processors of ELF files.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func checkELF(m manifest.Manifest, program string, f *elf.File) error {
	if want := machines[runtime.GOARCH]; f.Machine != want || f.Class != elf.ELFCLASS64 {
		return hint.Errorf("build it for "+runtime.GOARCH, "cannot run app %q: %s is built for %v (%v), sandboxes here for %v", m.Name, program, f.Machine, f.Class, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return hint.Errorf("link it statically: CGO_ENABLED=0 for Go, -static for C",
				"cannot run app %q: %s is linked dynamically, and a sandbox has no libraries", m.Name, program)
		}
	}
	return nil
}

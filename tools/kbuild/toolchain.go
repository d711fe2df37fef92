package kbuild

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/berthos/berth/host/hint"
)

// A Toolchain is what the bits of a kernel depend on besides its source.
type Toolchain struct {
	Compiler string `json:"compiler"`
	Binutils string `json:"binutils"`
}

// tools are the programs a build runs, and the Debian package of each.
var tools = []struct{ program, pkg string }{
	{"make", "make"}, {"bc", "bc"}, {"bison", "bison"}, {"flex", "flex"},
	{"gcc", "gcc"}, {"ld", "binutils"}, {"ar", "binutils"}, {"tar", "tar"},
	{"xz", "xz-utils"},
}

// cross is the prefix of an architecture's tools; make's ARCH is the same name
// as ours.
func cross(arch string) string {
	if arch == "arm64" {
		return "aarch64-linux-gnu-"
	}
	return ""
}

// toolchain finds every tool and the versions of those that matter.
func toolchain(ctx context.Context, arch string) (Toolchain, error) {
	if err := haveTools(arch, exec.LookPath); err != nil {
		return Toolchain{}, err
	}
	var t Toolchain
	var err error
	if t.Compiler, err = version(ctx, cross(arch)+"gcc"); err != nil {
		return Toolchain{}, err
	}
	t.Binutils, err = version(ctx, cross(arch)+"ld")
	return t, err
}

// haveTools names everything that is missing at once, with what to install.
func haveTools(arch string, lookPath func(string) (string, error)) error {
	all := tools
	if p := cross(arch); p != "" {
		all = append(all[:len(all):len(all)],
			struct{ program, pkg string }{p + "gcc", "gcc-aarch64-linux-gnu"},
			struct{ program, pkg string }{p + "ld", "binutils-aarch64-linux-gnu"})
	}
	var programs, pkgs []string
	for _, t := range all {
		if _, err := lookPath(t.program); err != nil {
			programs, pkgs = append(programs, t.program), append(pkgs, t.pkg)
		}
	}
	if programs == nil {
		return nil
	}
	return hint.Errorf("install the Debian packages "+strings.Join(pkgs, " "),
		"cannot build a kernel for %s: %s not found", arch, strings.Join(programs, ", "))
}

func version(ctx context.Context, program string) (string, error) {
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = buildEnv()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot ask %s for its version: %w", program, err)
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(line), nil
}

// Command mkseccomp compiles the system call filters of every class of app into
// a folder.
//
//	mkseccomp -arch x86_64 -o DIR
//
// It is the one program of the build that needs cgo, for libseccomp; mkimage
// compiles and runs it when a filter may have changed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/berthos/berth/tools/seccompile"
)

type world struct {
	args   []string
	stderr io.Writer
}

func main() {
	os.Exit(run(world{args: os.Args[1:], stderr: os.Stderr}))
}

func run(w world) int {
	flags := flag.NewFlagSet("mkseccomp", flag.ContinueOnError)
	flags.SetOutput(w.stderr)
	arch := flags.String("arch", "x86_64", "architecture: x86_64 or arm64")
	out := flags.String("o", "", "existing folder for the filters")
	if err := flags.Parse(w.args); err != nil {
		return 2
	}
	if err := write(*arch, *out); err != nil {
		fmt.Fprintln(w.stderr, "mkseccomp:", err)
		return 1
	}
	return 0
}

func write(arch, out string) error {
	if out == "" {
		return errors.New("cannot write filters: -o names no folder")
	}
	files, err := seccompile.Files(arch)
	if err != nil {
		return err
	}
	for name, bpf := range files {
		if err := os.WriteFile(filepath.Join(out, name), bpf, 0o644); err != nil {
			return fmt.Errorf("cannot write filter: %w", err)
		}
	}
	return nil
}

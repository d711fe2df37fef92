// Mkkernel builds the guest kernel and prints the folder it is in.
//
//	mkkernel [-arch x86_64|arm64] [-cache DIR] [-jobs N]
//	mkkernel -no-cache -o DIR     compile afresh into DIR
//	mkkernel -check-config        only configure, for every architecture
//	mkkernel -reproduce           build twice, elsewhere, and compare
//	mkkernel -update VERSION      rewrite kernel/pin.json
//
// The folder holds the kernel (vmlinux or Image), kernel.config, System.map and
// build.json. What people read goes to stderr. Exit codes: 0 done, 1 failed,
// 2 wrong use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/kernel"
	"github.com/berthos/berth/tools/kbuild"
)

func main() {
	os.Exit(run(context.Background(), world{args: os.Args[1:], out: os.Stdout, err: os.Stderr, getenv: os.Getenv, pin: "kernel/pin.json"}))
}

// world is what the program touches besides the build cache.
type world struct {
	args     []string
	out, err io.Writer
	getenv   func(string) string
	// pin is the file that -update rewrites.
	pin string
}

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

type flags struct {
	kbuild.Options
	noCache, check, reproduce bool
	out, update               string
}

func run(ctx context.Context, w world) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	f, err := parse(w)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return exitUsage
	}
	if err := do(ctx, w, f); err != nil {
		fmt.Fprintf(w.err, "mkkernel: %v\n", err)
		if h := hint.Of(err); h != "" {
			fmt.Fprintf(w.err, "hint: %s\n", h)
		}
		return exitFailed
	}
	return exitDone
}

func parse(w world) (flags, error) {
	var f flags
	s := flag.NewFlagSet("mkkernel", flag.ContinueOnError)
	s.SetOutput(w.err)
	s.StringVar(&f.Arch, "arch", "x86_64", "architecture: x86_64 or arm64")
	s.StringVar(&f.CacheDir, "cache", "", "build cache (default $BERTH_CACHE, $XDG_CACHE_HOME/berth or ~/.cache/berth)")
	s.IntVar(&f.Jobs, "jobs", 0, "compilers that run at once (default as many as processors)")
	s.BoolVar(&f.noCache, "no-cache", false, "compile afresh into the folder of -o")
	s.StringVar(&f.out, "o", "", "with -no-cache: the folder of the result")
	s.BoolVar(&f.check, "check-config", false, "only configure, for every architecture, and say which options did not survive")
	s.BoolVar(&f.reproduce, "reproduce", false, "build twice in different folders and compare")
	s.StringVar(&f.update, "update", "", "rewrite the pin for this Debian version of the source package")
	if err := s.Parse(w.args); err != nil {
		return f, err
	}
	f.Log, f.Getenv = w.err, w.getenv
	var err error
	switch {
	case s.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", s.Arg(0))
	case f.noCache != (f.out != ""):
		err = errors.New("-no-cache and -o go together")
	}
	if err != nil {
		fmt.Fprintf(w.err, "mkkernel: %v\n", err)
		s.Usage()
	}
	return f, err
}

func do(ctx context.Context, w world, f flags) error {
	switch {
	case f.update != "":
		return update(ctx, w, f)
	case f.check:
		return inTemp(func(dir string) error {
			return kbuild.CheckConfig(ctx, f.Options, dir, kernel.Arches...)
		})
	case f.reproduce:
		return inTemp(func(dir string) error { return reproduce(ctx, w, f, dir) })
	}
	var r kbuild.Result
	var err error
	if f.noCache {
		r, err = kbuild.BuildIn(ctx, f.Options, f.out)
	} else {
		r, err = kbuild.Build(ctx, f.Options)
	}
	if err == nil {
		fmt.Fprintln(w.out, r.Dir)
	}
	return err
}

func inTemp(do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "mkkernel-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	return do(dir)
}

func reproduce(ctx context.Context, w world, f flags, dir string) error {
	digests, err := kbuild.Reproduce(ctx, f.Options, dir)
	for name, d := range digests {
		fmt.Fprintf(w.out, "%s  %s\n", d, name)
	}
	return err
}

func update(ctx context.Context, w world, f flags) error {
	old, err := kernel.LoadPin()
	if err != nil {
		return err
	}
	if _, err := os.Stat(w.pin); err != nil {
		return fmt.Errorf("cannot update the pin: run in the root of the checkout: %w", err)
	}
	pin, err := kbuild.Update(ctx, f.Options, old, f.update)
	if err != nil {
		return err
	}
	text, err := pin.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.pin, text, 0o644); err != nil {
		return fmt.Errorf("cannot update the pin: %w", err)
	}
	fmt.Fprintf(w.err, "pinned %s %s (was %s); run mkkernel -check-config before the first build\n", pin.Package, pin.PackageVersion, old.PackageVersion)
	return nil
}

// Command mkimage builds an image folder: the kernel, the root filesystem with
// its verity tree, and the index that names both.
//
//	mkimage -arch x86_64 -o build/image
//	mkimage -kind test -o build/test-image    the enforcer accepts ablations
//	mkimage -sizes -o build/image             sizes of what is in a folder
//	mkimage -reproduce                        build everything twice, compare
//
// It runs anywhere inside a checkout. Results are kept in the build cache
// ($BERTH_CACHE, else $XDG_CACHE_HOME/berth, else ~/.cache/berth), which
// checkouts share. The digest of the index goes to stdout, everything else to
// stderr.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/imagebuild"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

type world struct {
	args           []string
	stdout, stderr io.Writer
	getenv         func(string) string
	dir            string // working directory
}

func main() {
	os.Exit(run(context.Background(), world{args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, dir: "."}))
}

type options struct {
	arch, kind, out, cache, recipe string
	noCache, sizes, reproduce      bool
}

func run(ctx context.Context, w world) int {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	o, err := parse(w)
	if err != nil {
		return exitUsage
	}
	if err := do(ctx, w, o); err != nil {
		fmt.Fprintln(w.stderr, "mkimage:", err)
		if h := hint.Of(err); h != "" {
			fmt.Fprintln(w.stderr, "hint:", h)
		}
		return exitFailed
	}
	return exitOK
}

func parse(w world) (options, error) {
	var o options
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	flags.SetOutput(w.stderr)
	flags.StringVar(&o.arch, "arch", "x86_64", "architecture: x86_64 or arm64")
	flags.StringVar(&o.kind, "kind", "image", "image, or test: the enforcer accepts ablations and berth refuses it")
	flags.StringVar(&o.out, "o", "", "image folder, replaced as a whole (default build/image, or build/test-image)")
	flags.StringVar(&o.recipe, "recipe", "images/base.json", "what is in the image, relative to the checkout")
	flags.StringVar(&o.cache, "cache", "", "build cache (default $BERTH_CACHE, $XDG_CACHE_HOME/berth or ~/.cache/berth)")
	flags.BoolVar(&o.noCache, "no-cache", false, "use an empty cache and throw it away: builds everything")
	flags.BoolVar(&o.sizes, "sizes", false, "print the sizes of the image in -o, build nothing")
	flags.BoolVar(&o.reproduce, "reproduce", false, "build everything twice in different folders and compare")
	if err := flags.Parse(w.args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.kind != "image" && o.kind != "test" {
		fmt.Fprintln(w.stderr, "mkimage: takes no arguments, and -kind is image or test")
		flags.Usage()
		return o, flag.ErrHelp
	}
	return o, nil
}

func do(ctx context.Context, w world, o options) error {
	module, err := imagebuild.Module(w.dir)
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(module, "build", map[string]string{"image": "image", "test": "test-image"}[o.kind])
	}
	switch {
	case o.sizes:
		return printSizes(w, o.out)
	case o.reproduce:
		return reproduce(ctx, w, o, module)
	}
	return build(ctx, w, o, module)
}

func printSizes(w world, dir string) error {
	sizes, err := imagebuild.Sizes(dir)
	if err != nil {
		return err
	}
	total := imagebuild.Size{File: "total"}
	for _, s := range sizes {
		total.Raw, total.Compressed = total.Raw+s.Raw, total.Compressed+s.Compressed
	}
	for _, s := range append(sizes, total) {
		fmt.Fprintf(w.stdout, "%-10s %10d bytes %10d zstd\n", s.File, s.Raw, s.Compressed)
	}
	return nil
}

// kindOf maps the -kind flag to the index's kind.
func kindOf(flag string) string {
	if flag == "test" {
		return index.KindTest
	}
	return index.KindImage
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/imagebuild"
	"github.com/berthos/berth/tools/kbuild"
)

func build(ctx context.Context, w world, o options, module string) error {
	cacheDir, cleanup, err := cachePlace(w, o)
	if err != nil {
		return err
	}
	defer cleanup()
	cache, err := buildcache.Open(cacheDir)
	if err != nil {
		return err
	}
	recipe, err := imagebuild.ReadRecipe(filepath.Join(module, o.recipe))
	if err != nil {
		return err
	}
	self, err := selfDigest()
	if err != nil {
		return err
	}
	k, err := kbuild.Build(ctx, kbuild.Options{Arch: o.arch, CacheDir: cacheDir, Log: w.stderr, Getenv: w.getenv})
	if err != nil {
		return err
	}
	built, err := imagebuild.Build(ctx, imagebuild.Options{
		Module: module, Recipe: recipe, Arch: o.arch, Kind: kindOf(o.kind), Out: o.out, Cache: cache, Builder: self,
		Kernel: imagebuild.Kernel{File: k.VMLinux, Toolchain: map[string]string{"gcc": k.CompilerVersion, "linux": k.Version}},
		Log:    func(line string) { fmt.Fprintln(w.stderr, "image: "+line) },
	})
	if err != nil {
		return err
	}
	state := "unchanged"
	if built.Changed {
		state = "written"
	}
	fmt.Fprintf(w.stderr, "image: %s in %s (%s)\n", state, o.out, index.Unreleased)
	fmt.Fprintln(w.stdout, built.Digest)
	return nil
}

// cachePlace returns the cache's folder and how to clean up afterwards.
func cachePlace(w world, o options) (string, func(), error) {
	if o.noCache {
		dir, err := os.MkdirTemp("", "berth-cache-")
		if err != nil {
			return "", nil, fmt.Errorf("cannot make an empty cache: %w", err)
		}
		return dir, func() { os.RemoveAll(dir) }, nil
	}
	if o.cache != "" {
		return o.cache, func() {}, nil
	}
	dir, err := buildcache.Dir(w.getenv)
	return dir, func() {}, err
}

// selfDigest makes the building program itself an input of what it builds.
func selfDigest() (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find this program: %w", err)
	}
	sum, err := buildcache.HashFile(name)
	if err != nil {
		return "", fmt.Errorf("cannot read this program: %w", err)
	}
	return sum, nil
}

func reproduce(ctx context.Context, w world, o options, module string) error {
	cacheDir, cleanup, err := cachePlace(w, o)
	if err != nil {
		return err
	}
	defer cleanup()
	cache, err := buildcache.Open(cacheDir)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "berth-reproduce-")
	if err != nil {
		return fmt.Errorf("cannot reproduce image: %w", err)
	}
	defer os.RemoveAll(work)
	i, err := imagebuild.Reproduce(ctx, imagebuild.Reproduction{Module: module, Arch: o.arch, Work: work, Cache: cache, Log: w.stderr})
	if err != nil {
		return err
	}
	for _, a := range []index.Artifact{i.Kernel, i.Root.Artifact} {
		fmt.Fprintf(w.stdout, "%s  %s\n", a.SHA256, a.File)
	}
	fmt.Fprintf(w.stdout, "%s  verity root\n", i.Root.VerityRoot)
	return nil
}

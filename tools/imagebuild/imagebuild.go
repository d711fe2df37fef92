// Package imagebuild builds an image folder: kernel, root filesystem with its
// verity tree, and the index that names both.
package imagebuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/rootbuild"
)

// Names of the artifacts in an image folder.
const (
	KernelFile = "vmlinux"
	RootFile   = "root.img"
)

// AblationTag is the build tag of the enforcer in test images.
const AblationTag = "ablation"

// Options says what to build and from what.
type Options struct {
	Module  string            // root of the checkout
	Recipe  Recipe            // what is in the image
	Arch    string            // x86_64 or arm64
	Kind    string            // index.KindImage or index.KindTest
	Out     string            // the image folder, replaced as a whole
	Cache   *buildcache.Cache // keeps results
	Builder string            // digest of the program that builds: a part of every key
	Kernel  Kernel            // already built
	Log     func(string)      // told what is being done; nil is silence
}

// Kernel is a built kernel.
type Kernel struct {
	File      string
	Toolchain map[string]string // what it was built with, for the index
}

// Built is a finished image folder.
type Built struct {
	Index   index.Index
	Digest  string // of the index
	Changed bool   // the folder is not what it was before
}

// Build leaves the image in o.Out. If an image of the same inputs is in the
// cache nothing is compiled; if o.Out holds it already, nothing is written.
func Build(ctx context.Context, o Options) (Built, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if err := o.Recipe.check(o.Arch); err != nil {
		return Built{}, err
	}
	if o.Kind != index.KindImage && o.Kind != index.KindTest {
		return Built{}, fmt.Errorf("cannot build image of kind %q", o.Kind)
	}
	if err := checkTools(); err != nil {
		return Built{}, err
	}
	in, err := gather(ctx, o)
	if err != nil {
		return Built{}, err
	}
	result, err := o.Cache.Do(ctx, buildcache.Job{
		Kind: cacheKind(o), Key: in.key(o), Notice: o.Log,
		Build: func(ctx context.Context, dir string) error { return assemble(ctx, o, in, dir) },
	})
	if err != nil {
		return Built{}, explain(err)
	}
	i, digest, err := index.Read(result.Dir)
	if err != nil {
		return Built{}, err
	}
	changed, err := publish(o.Out, digest, map[string]string{
		index.File:       filepath.Join(result.Dir, index.File),
		index.DigestFile: filepath.Join(result.Dir, index.DigestFile),
		i.Root.File:      filepath.Join(result.Dir, i.Root.File),
		i.Kernel.File:    o.Kernel.File,
	})
	return Built{Index: i, Digest: digest, Changed: changed}, err
}

func cacheKind(o Options) string {
	if o.Kind == index.KindTest {
		return "test-image-" + o.Arch
	}
	return "image-" + o.Arch
}

// assemble makes root image and index in dir. Everything it needs meanwhile is
// in a folder of its own.
func assemble(ctx context.Context, o Options, in inputs, dir string) error {
	work, err := os.MkdirTemp("", "berth-image-")
	if err != nil {
		return fmt.Errorf("cannot build image: %w", err)
	}
	defer os.RemoveAll(work)
	built, err := buildRoot(ctx, o, in, work)
	if err != nil {
		return err
	}
	root, err := writeRoot(ctx, built.Tree, filepath.Join(dir, RootFile), work)
	if err != nil {
		return err
	}
	return writeIndex(o, in, built.Apps, root, dir)
}

// buildRoot compiles what is in the root; work must be empty.
func buildRoot(ctx context.Context, o Options, in inputs, work string) (rootbuild.Root, error) {
	busybox, err := o.Cache.Do(ctx, buildcache.Job{
		Kind: "busybox-" + o.Arch, Key: in.busyboxKey(o), Notice: o.Log,
		Build: func(ctx context.Context, dir string) error {
			o.Log("compiling the u-root commands")
			return rootbuild.Busybox(ctx, o.Module, o.Arch, filepath.Join(work, "busybox"), filepath.Join(dir, "bb"))
		},
	})
	if err != nil {
		return rootbuild.Root{}, err
	}
	o.Log("compiling the seccomp filters")
	filters := filepath.Join(work, "seccomp")
	if err := os.Mkdir(filters, 0o755); err != nil {
		return rootbuild.Root{}, fmt.Errorf("cannot build image: %w", err)
	}
	bpf, err := rootbuild.Filters(ctx, o.Module, o.Arch, filters)
	if err != nil {
		return rootbuild.Root{}, err
	}
	return rootbuild.Build(ctx, rootbuild.Options{
		Module: o.Module, Arch: o.Arch, Tags: tags(o.Kind), Work: work, Apps: o.Recipe.Apps,
		Bin: filepath.Join(busybox.Dir, "bb"), Filter: bpf, Log: o.Log,
	})
}

func tags(kind string) string {
	if kind == index.KindTest {
		return AblationTag
	}
	return ""
}

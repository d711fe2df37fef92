package rootbuild

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/rootfs"
)

// Options says what to build a root filesystem from.
type Options struct {
	Module string            // root of the checkout
	Arch   string            // x86_64 or arm64
	Tags   string            // build tags of PID 1 and the enforcer; "ablation" in test images
	Work   string            // empty folder; the tree's files stay in it
	Apps   []string          // names of first-party apps
	Bin    string            // compiled busybox, from Busybox
	Filter map[string][]byte // compiled seccomp filters by file name, from Filters
	Log    func(string)      // told what is being compiled; nil is silence
}

// App is what the image index says about a first-party app.
type App struct {
	Name string
	Code string // digest of its app image
	Dir  string // its files, as they are in the root
}

// Root is a built root filesystem.
type Root struct {
	Tree Tree
	Apps []App
}

// Busybox compiles the u-root commands into the file out. work is a folder for
// generated sources, which must be empty.
func Busybox(ctx context.Context, module, arch, work, out string) error {
	g, err := newGoTool(module, arch)
	if err != nil {
		return err
	}
	return buildBusybox(ctx, g, arch, work, out)
}

// Build compiles the programs and apps and lays out the tree.
func Build(ctx context.Context, o Options) (Root, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	g, err := newGoTool(o.Module, o.Arch)
	if err != nil {
		return Root{}, err
	}
	b := builder{Options: o, goTool: g, layout: newLayout()}
	for _, step := range []func(context.Context) error{b.static, b.busybox, b.programs, b.apps, b.filters} {
		if err := step(ctx); err != nil {
			return Root{}, err
		}
	}
	tree, err := b.layout.tree()
	return Root{Tree: tree, Apps: b.built}, err
}

type builder struct {
	Options
	goTool goTool
	layout layout
	built  []App
}

// static adds mount points, links and embedded files.
func (b *builder) static(context.Context) error {
	for _, dir := range rootfs.Dirs() {
		if err := b.layout.dir(dir); err != nil {
			return err
		}
	}
	for _, l := range rootfs.Links() {
		if err := b.layout.link(l.Path, l.Target); err != nil {
			return err
		}
	}
	files, err := rootfs.Files()
	if err != nil {
		return err
	}
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return b.layout.file("/"+name, data)
	})
}

func (b *builder) busybox(context.Context) error {
	if err := b.layout.program("/bin/bb", b.Bin); err != nil {
		return err
	}
	for _, name := range rootfs.Commands() {
		if err := b.layout.link("/bin/"+name, "bb"); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) programs(ctx context.Context) error {
	for _, p := range rootfs.Programs() {
		out := filepath.Join(b.Work, "programs", filepath.FromSlash(p.Path))
		b.Log("compiling " + p.Package)
		if err := b.goTool.build(ctx, local(p.Package), out, "-tags="+b.Tags); err != nil {
			return err
		}
		if err := b.layout.program(p.Path, out); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) apps(ctx context.Context) error {
	for _, name := range b.Apps {
		b.Log("compiling " + appPackage(name))
		if err := b.app(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// app compiles an app into a folder that holds exactly what the root will hold,
// so that the digest of that folder is the digest of the app in the root.
func (b *builder) app(ctx context.Context, name string) error {
	dir := filepath.Join(b.Work, "apps", name)
	program, manifest := filepath.Join(dir, name), filepath.Join(dir, rootfs.Manifest)
	if err := b.goTool.build(ctx, local(appPackage(name)), program); err != nil {
		return err
	}
	data, err := os.ReadFile(manifestOf(b.Module, name))
	if err != nil {
		return fmt.Errorf("cannot add app %s to root filesystem: %w", name, err)
	}
	if err := os.WriteFile(manifest, data, 0o644); err != nil {
		return fmt.Errorf("cannot add app %s to root filesystem: %w", name, err)
	}
	code, _, err := appimage.Build(io.Discard, dir)
	if err != nil {
		return err
	}
	b.built = append(b.built, App{Name: name, Code: code, Dir: dir})
	inside := path.Join(rootfs.AppsDir, name)
	if err := b.layout.program(path.Join(inside, name), program); err != nil {
		return err
	}
	return b.layout.file(path.Join(inside, rootfs.Manifest), data)
}

func appPackage(name string) string { return "apps/" + name }

// manifestOf returns the manifest of an app in the checkout.
func manifestOf(module, name string) string {
	return filepath.Join(module, "apps", name, rootfs.Manifest)
}

func (b *builder) filters(context.Context) error {
	for name, bpf := range b.Filter {
		if err := b.layout.file(path.Join(rootfs.SeccompDir, name), bpf); err != nil {
			return err
		}
	}
	return nil
}

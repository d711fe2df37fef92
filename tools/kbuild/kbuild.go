// Package kbuild owns the way from the pinned source to a kernel: fetch, unpack,
// configure, check that every asked-for option survived, compile, strip.
package kbuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/berthos/berth/kernel"
	"github.com/berthos/berth/tools/buildcache"
)

// recipe is part of every key: raise it when this package starts to make
// different bits from the same inputs.
const recipe = "1"

// Options says what to build. Only Arch is required.
type Options struct {
	// Arch is x86_64 or arm64.
	Arch string
	// CacheDir is the build cache; see buildcache.Dir for where it is if empty.
	CacheDir string
	// WorkDir is where the source is unpacked and compiled: 1 GB. A folder of
	// the cache if empty.
	WorkDir string
	// Jobs is how many compilers run at once; as many as processors if 0.
	Jobs int
	// Log gets lines for people; discarded if nil.
	Log io.Writer
	// Getenv is asked for BERTH_CACHE and its like; os.Getenv if nil.
	Getenv func(string) string
}

// A Result is a finished kernel.
type Result struct {
	// Dir holds the files below, System.map and build.json.
	Dir string
	// VMLinux is what a machine boots: an ELF file on x86_64, an Image on arm64.
	VMLinux string
	// Config is the whole configuration it was compiled with.
	Config string
	// Key is the hash of everything that went in.
	Key string
	// CompilerVersion is the first line of what the compiler says of itself.
	CompilerVersion string
	// BinutilsVersion is the same of the linker.
	BinutilsVersion string
	// Version is the kernel's.
	Version string
	// Hit is true if nothing had to be compiled.
	Hit bool
}

// Inputs is written beside a kernel as build.json: what it was made from.
type Inputs struct {
	Recipe    string            `json:"recipe"`
	Arch      string            `json:"arch"`
	Version   string            `json:"version"`
	Package   string            `json:"package"`
	Source    string            `json:"source_sha256"`
	Toolchain Toolchain         `json:"toolchain"`
	Fragments map[string]string `json:"fragments_sha256"`
}

// Build returns the kernel for an architecture, from the cache if nothing that
// it depends on has changed.
func Build(ctx context.Context, opt Options) (Result, error) {
	b, err := newBuild(ctx, opt)
	if err != nil {
		return Result{}, err
	}
	return b.cached(ctx)
}

func (b *build) cached(ctx context.Context) (Result, error) {
	key := b.key()
	r, err := b.cache.Do(ctx, buildcache.Job{
		Kind: "kernel-" + b.arch, Key: key,
		Notice: b.say,
		Build:  b.make,
	})
	if err != nil {
		return Result{}, explain(err, b.cacheDir)
	}
	return b.result(r.Dir, key, r.Hit), nil
}

// BuildIn compiles into out, whatever the cache holds; only the download is
// shared.
func BuildIn(ctx context.Context, opt Options, out string) (Result, error) {
	b, err := newBuild(ctx, opt)
	if err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return Result{}, fmt.Errorf("cannot use the output folder: %w", err)
	}
	if err := b.make(ctx, out); err != nil {
		return Result{}, explain(err, out)
	}
	return b.result(out, b.key(), false), nil
}

type build struct {
	arch      string
	pin       kernel.Pin
	fragments []kernel.Fragment
	toolchain Toolchain
	cache     *buildcache.Cache
	cacheDir  string
	work      string
	jobs      int
	log       io.Writer
	getenv    func(string) string
}

func newBuild(ctx context.Context, opt Options) (*build, error) {
	b := &build{arch: opt.Arch, work: opt.WorkDir, jobs: opt.Jobs, log: opt.Log, getenv: opt.Getenv, cacheDir: opt.CacheDir}
	if b.jobs == 0 {
		b.jobs = runtime.NumCPU()
	}
	if b.log == nil {
		b.log = io.Discard
	}
	if b.getenv == nil {
		b.getenv = os.Getenv
	}
	var err error
	if b.fragments, err = kernel.Fragments(b.arch); err != nil {
		return nil, err
	}
	if b.pin, err = kernel.LoadPin(); err != nil {
		return nil, err
	}
	if b.toolchain, err = toolchain(ctx, b.arch); err != nil {
		return nil, err
	}
	return b, b.openCache()
}

func (b *build) openCache() error {
	var err error
	if b.cacheDir == "" {
		if b.cacheDir, err = buildcache.Dir(b.getenv); err != nil {
			return err
		}
	}
	if b.cache, err = buildcache.Open(b.cacheDir); err != nil {
		return explain(err, b.cacheDir)
	}
	return nil
}

func (b *build) say(message string) {
	fmt.Fprintf(b.log, "kernel %s: %s\n", b.arch, message)
}

func (b *build) inputs() Inputs {
	in := Inputs{
		Recipe: recipe, Arch: b.arch, Version: b.pin.Version, Package: b.pin.Package,
		Source: b.pin.SHA256, Toolchain: b.toolchain, Fragments: map[string]string{},
	}
	for _, f := range b.fragments {
		in.Fragments[f.Name] = digest(f.Text)
	}
	return in
}

func (b *build) key() string {
	in := b.inputs()
	var h buildcache.Hash
	h.Add("recipe", in.Recipe)
	h.Add("arch", in.Arch)
	h.Add("source", in.Source)
	h.Add("compiler", in.Toolchain.Compiler)
	h.Add("binutils", in.Toolchain.Binutils)
	for _, f := range b.fragments {
		h.Add(f.Name, in.Fragments[f.Name])
	}
	return h.Sum()
}

func (b *build) result(dir, key string, hit bool) Result {
	return Result{
		Dir: dir, Key: key, Hit: hit, Version: b.pin.Version, CompilerVersion: b.toolchain.Compiler,
		BinutilsVersion: b.toolchain.Binutils,
		VMLinux:         filepath.Join(dir, KernelFile(b.arch)), Config: filepath.Join(dir, configFile),
	}
}

// make does everything; out gets the result.
func (b *build) make(ctx context.Context, out string) error {
	work, err := b.workFolder(out)
	if err != nil {
		return fmt.Errorf("cannot make the work folder: %w", err)
	}
	defer os.RemoveAll(work)
	t := tree{src: filepath.Join(work, "src"), obj: filepath.Join(work, "obj")}
	for _, step := range []func(context.Context, tree) error{b.unpack, b.configure, b.compile} {
		if err := step(ctx, t); err != nil {
			return err
		}
	}
	return b.install(ctx, t, out)
}

// workFolder lies inside out unless another place was asked for, so that what a
// killed build leaves in the cache is cleared with the rest of it.
func (b *build) workFolder(out string) (string, error) {
	if b.work != "" {
		return os.MkdirTemp(b.work, "kernel-")
	}
	return os.MkdirTemp(out, "work-")
}

// CheckConfig configures a kernel for each architecture in a folder below dir
// and says which asked-for options did not survive. It compiles nothing but
// Kconfig itself.
func CheckConfig(ctx context.Context, opt Options, dir string, arches ...string) error {
	work, err := os.MkdirTemp(dir, "config-")
	if err != nil {
		return fmt.Errorf("cannot make the work folder: %w", err)
	}
	defer os.RemoveAll(work)
	t := tree{src: filepath.Join(work, "src")}
	for i, arch := range arches {
		opt.Arch = arch
		b, err := newBuild(ctx, opt)
		if err != nil {
			return err
		}
		if i == 0 {
			if err := b.unpack(ctx, t); err != nil {
				return explain(err, work)
			}
		}
		t.obj = filepath.Join(work, arch)
		if err := b.configure(ctx, t); err != nil {
			return err
		}
		b.say(fmt.Sprintf("all %d options hold", len(kernel.Options(b.fragments))))
	}
	return nil
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

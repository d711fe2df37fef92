package kbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/kernel"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/testenv"
)

// The real thing, short of compiling: every option of every fragment holds in
// the pinned source. Building the kernel is somebody else's job here.
func TestConfigSurvives(t *testing.T) {
	cache, err := buildcache.Dir(os.Getenv)
	if err != nil {
		testenv.Skip(t, err.Error())
	}
	for _, arch := range kernel.Arches {
		if err := haveTools(arch, exec.LookPath); err != nil {
			testenv.Skip(t, err.Error()+": "+hint.Of(err))
		}
	}
	log := &strings.Builder{}
	err = CheckConfig(t.Context(), Options{CacheDir: cache, Log: log}, t.TempDir(), kernel.Arches...)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
}

func TestMirrors(t *testing.T) {
	root := fstest.MapFS{
		"etc/apt/sources.list": {Data: []byte(`# deb http://commented/debian sid main
deb http://one/debian/ bookworm main contrib
deb [arch=amd64 signed-by=/k.gpg] https://two/debian bookworm main # why
deb-src http://source/debian bookworm main
deb http://contrib-only/debian bookworm contrib
deb cdrom:[Debian]/ bookworm main
`)},
		"etc/apt/sources.list.d/a.list": {Data: []byte("deb http://one/debian bookworm-updates main\ndeb file:/srv/mirror ./ main\n")},
		"etc/apt/sources.list.d/b.sources": {Data: []byte(`Types: deb deb-src
URIs: http://three/debian
  http://four/debian
Suites: bookworm
Components: main contrib
# a comment
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .

Types: deb
URIs: http://disabled/debian
Components: main
Enabled: no

Types: deb-src
URIs: http://source/debian
Components: main
`)},
		"etc/apt/sources.list.d/c.save": {Data: []byte("deb http://saved/debian bookworm main\n")},
	}
	got := Mirrors("", root)
	want := []string{"http://one/debian", "https://two/debian", "file:/srv/mirror", "http://three/debian", "http://four/debian"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Mirrors("/srv/debian/", root); !slices.Equal(got, []string{"/srv/debian"}) {
		t.Errorf("with an override: %q", got)
	}
	if got := Mirrors("", fstest.MapFS{}); len(got) != 0 {
		t.Errorf("without apt: %q", got)
	}
}

func TestSources(t *testing.T) {
	pin := kernel.Pin{PoolPath: "pool/main/l/a_1+b.deb", Archives: []string{"https://archive/a.deb"}}
	got := sources(pin, []string{"http://one/debian", "/srv", "file:///mnt"})
	want := []string{
		"http://one/debian/pool/main/l/a_1%2bb.deb",
		"/srv/pool/main/l/a_1+b.deb", "/srv/a_1+b.deb",
		"file:///mnt/pool/main/l/a_1+b.deb", "file:///mnt/a_1+b.deb",
		"https://archive/a.deb",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// newTestBuild is a build whose source is a small file, in a cache of its own.
func newTestBuild(t *testing.T, mirror string) *build {
	t.Helper()
	b := &build{
		arch: "x86_64", log: &strings.Builder{}, cacheDir: t.TempDir(),
		pin: kernel.Pin{Package: "linux-source-0", PoolPath: "pool/s.deb", SHA256: digest([]byte("source")), Size: 6},
		getenv: func(name string) string {
			if name == EnvMirror {
				return mirror
			}
			return ""
		},
	}
	if err := b.openCache(); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFetchFromLocalFolder(t *testing.T) {
	mirror := t.TempDir()
	if err := os.WriteFile(filepath.Join(mirror, "s.deb"), []byte("source"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := newTestBuild(t, mirror).fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "source" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFetchSaysWhereItLooked(t *testing.T) {
	mirror := t.TempDir()
	_, err := newTestBuild(t, mirror).fetch(t.Context())
	if err == nil {
		t.Fatal("an empty folder is no mirror")
	}
	for _, place := range []string{mirror + "/pool/s.deb", mirror + "/s.deb"} {
		if !strings.Contains(err.Error(), place) {
			t.Errorf("error does not name %s: %v", place, err)
		}
	}
	if !strings.Contains(hint.Of(err), EnvMirror) {
		t.Errorf("hint %q does not name %s", hint.Of(err), EnvMirror)
	}
}

func TestFetchOfOtherBytes(t *testing.T) {
	mirror := t.TempDir()
	if err := os.WriteFile(filepath.Join(mirror, "s.deb"), []byte("Source"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newTestBuild(t, mirror)
	_, err := b.fetch(t.Context())
	for _, d := range []string{digest([]byte("source")), digest([]byte("Source"))} {
		if err == nil || !strings.Contains(err.Error(), d) {
			t.Errorf("error does not name %s: %v", d, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(b.cacheDir, "downloads", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestUnpackOfDamagedPackage(t *testing.T) {
	mirror := t.TempDir()
	if err := os.WriteFile(filepath.Join(mirror, "s.deb"), []byte("source"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := newTestBuild(t, mirror).unpack(t.Context(), tree{src: t.TempDir()})
	if err == nil || !strings.HasPrefix(err.Error(), "cannot unpack s.deb: ") {
		t.Errorf("got %v", err)
	}
}

func TestMissingToolsAreNamedWithTheirPackages(t *testing.T) {
	err := haveTools("arm64", func(p string) (string, error) {
		if p == "bison" || p == "aarch64-linux-gnu-gcc" {
			return "", exec.ErrNotFound
		}
		return "/usr/bin/" + p, nil
	})
	if err == nil || !strings.Contains(err.Error(), "bison, aarch64-linux-gnu-gcc not found") {
		t.Errorf("got %v", err)
	}
	if h := hint.Of(err); !strings.Contains(h, "bison gcc-aarch64-linux-gnu") {
		t.Errorf("hint %q", h)
	}
	for _, tool := range tools {
		if !slices.Contains(kernel.Packages(), tool.pkg) {
			t.Errorf("%s is not in kernel/packages.txt", tool.pkg)
		}
	}
}

// Everything the bits depend on is in the key.
func TestKeyDependsOnInputs(t *testing.T) {
	fresh := func() *build {
		fragments, err := kernel.Fragments("x86_64")
		if err != nil {
			t.Fatal(err)
		}
		return &build{arch: "x86_64", fragments: fragments, pin: kernel.Pin{SHA256: "s"}, toolchain: Toolchain{"c", "b"}}
	}
	base := fresh().key()
	if fresh().key() != base {
		t.Fatal("the key is not stable")
	}
	for name, change := range map[string]func(*build){
		"arch":     func(b *build) { b.arch = "arm64" },
		"source":   func(b *build) { b.pin.SHA256 = "t" },
		"compiler": func(b *build) { b.toolchain.Compiler = "d" },
		"binutils": func(b *build) { b.toolchain.Binutils = "d" },
		"fragment": func(b *build) { b.fragments[2].Text = append(b.fragments[2].Text, '\n') },
	} {
		b := fresh()
		change(b)
		if b.key() == base {
			t.Errorf("%s is not in the key", name)
		}
	}
}

func TestLostErrorNamesEveryOption(t *testing.T) {
	e := &LostError{Arch: "x86_64", Lost: []kernel.Loss{
		{Option: kernel.Option{Name: "CONFIG_A", Value: "y", Fragment: "f", Line: 1}, Got: "n"},
		{Option: kernel.Option{Name: "CONFIG_B", Value: "n", Fragment: "f", Line: 2}, Unknown: true},
	}}
	for _, want := range []string{"2 asked-for options", "f:1: CONFIG_A: want y, got n", "f:2: CONFIG_B: this kernel has no such option"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q is missing in %q", want, e.Error())
		}
	}
}

func TestExplain(t *testing.T) {
	full := fmt.Errorf("cannot compile: cc1: fatal error: x.s: No space left on device")
	if h := hint.Of(explain(full, "/c")); !strings.Contains(h, "1 GB in /c") {
		t.Errorf("full disk: %q", h)
	}
	if h := hint.Of(explain(os.ErrPermission, "/c")); !strings.Contains(h, "BERTH_CACHE") {
		t.Errorf("permission: %q", h)
	}
	other := errors.New("other")
	if explain(other, "/c") != other {
		t.Error("another error was changed")
	}
}

func TestCompilerErrorIsKeptThroughLaterOutput(t *testing.T) {
	p := &progress{say: func(string) {}}
	fmt.Fprint(p, "  CC      a.o\nfs/a.c:1: error: no such thing\n")
	for i := range 100 {
		fmt.Fprintf(p, "  CC      %d.o\n", i)
	}
	fmt.Fprint(p, "make: *** Er")
	fmt.Fprint(p, "ror 2\n")
	if tail := p.tail(); !strings.Contains(tail, "no such thing") || !strings.HasSuffix(tail, "make: *** Error 2") {
		t.Errorf("tail is %q", tail)
	}
	if p.files != 101 {
		t.Errorf("%d files, want 101", p.files)
	}
}

func TestPipelineReportsWhatFailed(t *testing.T) {
	ctx := t.Context()
	err := pipeline(exec.CommandContext(ctx, "echo", "x"), exec.CommandContext(ctx, "ar", "p", "/nonexistent"))
	if err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("got %v", err)
	}
	err = pipeline(exec.CommandContext(ctx, "/nonexistent/program"), exec.CommandContext(ctx, "cat"))
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("got %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := pipeline(exec.CommandContext(cancelled, "cat")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSame(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, d := range []string{a, b} {
		if err := os.WriteFile(filepath.Join(d, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := same(a, b, "f"); err != nil || got["f"] != digest([]byte("x")) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(b, "f"), []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := same(a, b, "f"); err == nil || !strings.Contains(err.Error(), "cannot reproduce f") {
		t.Errorf("got %v", err)
	}
}

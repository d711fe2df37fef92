package kbuild

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/kernel"
	"github.com/berthos/berth/tools/buildcache"
)

// A source that is built like a kernel, in no time: allnoconfig copies what was
// asked for, vmlinux is some ELF file.
const fakeMakefile = `
allnoconfig:
	@test "$$LC_ALL" = C && test -z "$$CFLAGS"
	@cp $(KCONFIG_ALLCONFIG) $(O)/.config
vmlinux:
	@echo "  CC      a.o"
	@cp /proc/self/exe $(O)/vmlinux && echo map > $(O)/System.map
`

// fakePackage makes a mirror that holds such a source as a Debian package.
func fakePackage(t *testing.T, makefile string) (mirror string, pin kernel.Pin) {
	t.Helper()
	dir, mirror := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("linux-source-0/Makefile", makefile)
	write("linux-source-0/Kconfig", "config A\n\tbool\nconfig B\n\tbool\n")
	deb := filepath.Join(mirror, "s.deb")
	for _, args := range [][]string{
		{"mkdir", "-p", "usr/src"},
		{"tar", "-cJf", "usr/src/linux-source-0.tar.xz", "linux-source-0"},
		{"tar", "-cJf", "data.tar.xz", "./usr"},
		{"ar", "rc", deb, "data.tar.xz"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	b, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	return mirror, kernel.Pin{Version: "0.1", Package: "linux-source-0", PoolPath: "pool/s.deb", SHA256: digest(b), Size: int64(len(b))}
}

func fakeBuild(t *testing.T, makefile, fragment string) *build {
	t.Helper()
	mirror, pin := fakePackage(t, makefile)
	b := newTestBuild(t, mirror)
	options, err := kernel.ParseFragment("f", []byte(fragment))
	if err != nil {
		t.Fatal(err)
	}
	b.pin, b.jobs, b.toolchain = pin, 2, Toolchain{"compiler", "linker"}
	b.fragments = []kernel.Fragment{{Name: "f", Text: []byte(fragment), Options: options}}
	return b
}

// mustBeTidy checks that nothing half made is left in the cache.
func mustBeTidy(t *testing.T, b *build) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(b.cacheDir, "unfinished"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}

func TestWholeBuild(t *testing.T) {
	t.Setenv("CFLAGS", "-the-caller's-own") // must not reach the build
	b := fakeBuild(t, fakeMakefile, "CONFIG_A=y\nCONFIG_B=n\n")
	first, err := b.cached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vmlinux", configFile, mapFile, inputsFile} {
		if st, err := os.Stat(filepath.Join(first.Dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if first.Hit || first.Version != "0.1" || first.CompilerVersion != "compiler" {
		t.Errorf("got %+v", first)
	}
	// The source is not even looked at for a hit.
	if err := os.RemoveAll(b.cache.Download("s.deb")); err != nil {
		t.Fatal(err)
	}
	b.getenv = func(string) string { return "/nonexistent" }
	if second, err := b.cached(t.Context()); err != nil || !second.Hit || second.Dir != first.Dir {
		t.Errorf("the second time: %+v, %v", second, err)
	}
	if err := os.Truncate(first.VMLinux, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cached(t.Context()); err == nil {
		t.Error("a damaged kernel was used")
	}
	mustBeTidy(t, b)
}

func TestBuildsFromTwoFoldersAreCompared(t *testing.T) {
	b := fakeBuild(t, fakeMakefile, "CONFIG_A=y\n")
	dirs := [2]string{}
	for i := range dirs {
		dirs[i] = filepath.Join(t.TempDir(), strings.Repeat("x", i+1))
		if err := os.Mkdir(dirs[i], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.make(t.Context(), dirs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := same(dirs[0], dirs[1], "vmlinux", configFile); err != nil {
		t.Error(err)
	}
}

func TestLostOptionStopsTheBuild(t *testing.T) {
	drops := strings.Replace(fakeMakefile, "cp $(KCONFIG_ALLCONFIG)", "grep -v _A= $(KCONFIG_ALLCONFIG) >", 1)
	b := fakeBuild(t, drops, "CONFIG_A=y\nCONFIG_B=n\nCONFIG_C=n\n")
	_, err := b.cached(t.Context())
	var lost *LostError
	if !errors.As(err, &lost) || len(lost.Lost) != 2 || lost.Lost[0].Name != "CONFIG_A" || !lost.Lost[1].Unknown {
		t.Errorf("got %v", err)
	}
	mustBeTidy(t, b)
}

func TestCompilerErrorIsShown(t *testing.T) {
	b := fakeBuild(t, fakeMakefile+"\t@echo 'a.c:1: error: no semicolon' >&2; exit 1\n", "CONFIG_A=y\n")
	_, err := b.cached(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "cannot compile the kernel: vmlinux: ") || !strings.Contains(err.Error(), "no semicolon") {
		t.Errorf("got %v", err)
	}
	mustBeTidy(t, b)
}

// A cancelled build ends with everything it started: the compiler waits for
// somebody to write into a fifo, which has no reader any more once it is gone.
func TestCancelledBuildEndsItsCompilers(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	hangs := fakeMakefile + "\t@echo started > " + fifo + "; cat " + fifo + " > /dev/null\n"
	b := fakeBuild(t, hangs, "CONFIG_A=y\n")
	if out, err := exec.CommandContext(t.Context(), "mkfifo", fifo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		os.ReadFile(fifo) // returns when the compiler runs
		cancel()
	}()
	if _, err := b.cached(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if !errors.Is(err, syscall.ENXIO) {
		f.Close()
		t.Errorf("the compiler still runs: %v", err)
	}
	mustBeTidy(t, b)
}

func TestUnusableCacheIsExplained(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Build(t.Context(), Options{Arch: "x86_64", CacheDir: filepath.Join(file, "cache")})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
	if _, err := buildcache.Open(t.TempDir()); err != nil {
		t.Errorf("control: %v", err)
	}
}

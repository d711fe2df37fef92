package imagebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/rootbuild"
)

// Reproduction says how to build an image twice.
type Reproduction struct {
	Module string            // root of the checkout
	Arch   string            // x86_64 or arm64
	Work   string            // empty folder; needs some GB
	Cache  *buildcache.Cache // downloads are taken from it
	Log    io.Writer         // gets what the two builds say
}

// places are where the two builds happen: names of different length, so that a
// path that gets into an artifact shows.
var places = [2]string{"one", "the-other-one/deeper"}

// Reproduce copies the checkout to two folders, builds builder and image in each
// with caches of its own, and compares. Only downloads are shared; they are
// verified by each build. It returns the index that both have.
func Reproduce(ctx context.Context, r Reproduction) (index.Index, error) {
	var images [2]string
	for n, place := range places {
		dir := filepath.Join(r.Work, place)
		fmt.Fprintf(r.Log, "build %d of %d in %s\n", n+1, len(places), dir)
		if err := r.build(ctx, dir); err != nil {
			return index.Index{}, fmt.Errorf("cannot reproduce image: build %d: %w", n+1, err)
		}
		images[n] = filepath.Join(dir, "image")
	}
	return Compare(images[0], images[1])
}

func (r Reproduction) build(ctx context.Context, dir string) error {
	checkout, cache := filepath.Join(dir, "checkout"), filepath.Join(dir, "cache")
	if err := copyCheckout(checkout, r.Module); err != nil {
		return err
	}
	if err := linkDownloads(r.Cache, cache); err != nil {
		return err
	}
	program := filepath.Join(dir, "mkimage")
	for _, args := range [][]string{
		{"go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./tools/mkimage"},
		{program, "-arch", r.Arch, "-o", filepath.Join(dir, "image"), "-cache", cache},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = checkout, r.Log, r.Log
		cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "gocache"))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
		}
	}
	return nil
}

// copyCheckout copies everything but what is built.
func copyCheckout(to, from string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch rel {
		case ".git", "bin", "build":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		target := filepath.Join(to, rel)
		switch d.Type() {
		case fs.ModeDir:
			return os.MkdirAll(target, 0o755)
		case 0:
			return copySource(target, name, d)
		}
		return nil
	})
}

func copySource(to, from string, d fs.DirEntry) error {
	if err := copyFile(to, from); err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	return os.Chmod(to, info.Mode().Perm())
}

// linkDownloads gives a new cache the downloads of another one.
func linkDownloads(from *buildcache.Cache, to string) error {
	cache, err := buildcache.Open(to)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(from.Download(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(cache.Download(""), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := copyFile(cache.Download(e.Name()), from.Download(e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Compare returns the index of two image folders, or an error that names
// everything in which they differ.
func Compare(a, b string) (index.Index, error) {
	x, err := verified(a)
	if err != nil {
		return index.Index{}, err
	}
	y, err := verified(b)
	if err != nil {
		return index.Index{}, err
	}
	var faults []error
	differ := func(what, one, two string) {
		if one != two {
			faults = append(faults, fmt.Errorf("%s differs: %s, %s", what, one, two))
		}
	}
	differ("kernel", x.Kernel.SHA256, y.Kernel.SHA256)
	differ("root image", x.Root.SHA256, y.Root.SHA256)
	differ("verity root digest", x.Root.VerityRoot, y.Root.VerityRoot)
	differ("toolchain", fmt.Sprint(x.Toolchain), fmt.Sprint(y.Toolchain))
	differ("apps", fmt.Sprint(x.Apps), fmt.Sprint(y.Apps))
	if x.Root.SHA256 != y.Root.SHA256 {
		faults = append(faults, compareRoots(filepath.Join(a, x.Root.File), filepath.Join(b, y.Root.File)))
	}
	one, _ := x.Encode()
	two, _ := y.Encode()
	if len(faults) == 0 && !bytes.Equal(one, two) {
		faults = append(faults, errors.New("the indexes differ"))
	}
	if err := errors.Join(faults...); err != nil {
		return index.Index{}, fmt.Errorf("cannot reproduce image: %w", err)
	}
	return x, nil
}

func verified(dir string) (index.Index, error) {
	i, _, err := index.Read(dir)
	if err != nil {
		return i, err
	}
	return i, i.Verify(dir)
}

// compareRoots names the files in which two root images differ.
func compareRoots(a, b string) error {
	x, err := readRoot(a)
	if err != nil {
		return err
	}
	y, err := readRoot(b)
	if err != nil {
		return err
	}
	return rootbuild.Compare(x, y)
}

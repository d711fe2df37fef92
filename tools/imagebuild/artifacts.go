package imagebuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/rootfs"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/rootbuild"
	"github.com/berthos/berth/tools/verity"
)

// artifact measures a file that will be called name in the image folder.
func artifact(file, name string) (index.Artifact, error) {
	info, err := os.Stat(file)
	if err != nil {
		return index.Artifact{}, fmt.Errorf("cannot measure %s: %w", name, err)
	}
	sum, err := buildcache.HashFile(file)
	if err != nil {
		return index.Artifact{}, fmt.Errorf("cannot measure %s: %w", name, err)
	}
	return index.Artifact{File: name, SHA256: sum, Size: info.Size()}, nil
}

// writeRoot writes the tree as an EROFS image with its verity tree appended.
func writeRoot(ctx context.Context, t rootbuild.Tree, name, tmp string) (index.Root, error) {
	f, err := os.Create(name)
	if err != nil {
		return index.Root{}, fmt.Errorf("cannot write root image: %w", err)
	}
	err = rootbuild.WriteImage(f, t, tmp)
	if closed := f.Close(); err == nil && closed != nil {
		err = fmt.Errorf("cannot write root image: %w", closed)
	}
	if err != nil {
		return index.Root{}, err
	}
	if err := readBack(name, t); err != nil {
		return index.Root{}, err
	}
	digest, size, err := verity.Format(ctx, name)
	if err != nil {
		return index.Root{}, err
	}
	a, err := artifact(name, filepath.Base(name))
	return index.Root{Artifact: a, DataSize: size, VerityRoot: digest, VeritySalt: verity.Salt()}, err
}

// readBack compares what is in the image with what was put in.
func readBack(name string, want rootbuild.Tree) error {
	got, err := readRoot(name)
	if err != nil {
		return err
	}
	return rootbuild.Compare(got, want)
}

func readRoot(name string) (rootbuild.Tree, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read root image: %w", err)
	}
	defer f.Close()
	return rootbuild.ReadImage(f)
}

func writeIndex(o Options, in inputs, built []rootbuild.App, root index.Root, dir string) error {
	apps, err := describe(built)
	if err != nil {
		return err
	}
	i := index.Index{
		Schema: index.Schema, Kind: o.Kind, Name: o.Recipe.Name, Arch: o.Arch, Version: index.Unreleased,
		Kernel: in.kernel, Root: root, Landlock: o.Recipe.Landlock, Errata: o.Recipe.Errata, Apps: apps, Toolchain: in.toolchain(o),
	}
	raw, err := i.Encode()
	if err != nil {
		return err
	}
	if _, err := index.Parse(raw); err != nil {
		return fmt.Errorf("cannot use the index that was built: %w", err)
	}
	for name, data := range map[string][]byte{index.File: raw, index.DigestFile: []byte(index.DigestLine(index.Digest(raw)))} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("cannot write image index: %w", err)
		}
	}
	return nil
}

// describe adds the version of each app's manifest.
func describe(built []rootbuild.App) ([]index.App, error) {
	apps := []index.App{}
	for _, a := range built {
		raw, err := os.ReadFile(filepath.Join(a.Dir, rootfs.Manifest))
		if err != nil {
			return nil, fmt.Errorf("cannot describe app %s: %w", a.Name, err)
		}
		m, err := manifest.Parse(a.Name+"/"+rootfs.Manifest, raw)
		if err != nil {
			return nil, fmt.Errorf("cannot describe app %s: %w", a.Name, err)
		}
		if m.Name != a.Name {
			return nil, fmt.Errorf("cannot describe app %s: its manifest names it %q", a.Name, m.Name)
		}
		apps = append(apps, index.App{Name: a.Name, Version: m.Version, Code: a.Code})
	}
	return apps, nil
}

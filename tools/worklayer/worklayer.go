// Package worklayer makes a folder of real programs out of Debian packages, for
// tests that run them inside a sandbox as an app's code.
package worklayer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/fetch"
	"github.com/berthos/berth/tools/kbuild"
)

// Options says what is in a layer.
type Options struct {
	// Packages are wanted, with what they depend on.
	Packages []string
	// Without are left out although something depends on them.
	Without []string
	// Notice, if not nil, is told what is done.
	Notice func(message string)
}

// Layer is a finished layer: an app image and what it was made of.
type Layer struct {
	File     string    `json:"-"`      // the image
	Digest   string    `json:"digest"` // as in a policy
	Size     int64     `json:"size"`   // in bytes
	Packages []Package `json:"packages"`
	Hit      bool      `json:"-"` // it was in the cache
}

// version is part of a layer's key: raise it when what is made of the same
// packages changes.
const version = "1"

// Names inside a result of the cache.
const (
	imageName  = "layer.tar"
	recordName = "layer.json"
)

// Build returns the layer of these packages as apt resolves them now, from the
// cache or made anew.
func Build(ctx context.Context, o Options) (Layer, error) {
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	dir, err := buildcache.Dir(os.Getenv)
	if err != nil {
		return Layer{}, err
	}
	cache, err := buildcache.Open(dir)
	if err != nil {
		return Layer{}, err
	}
	packages, err := resolve(ctx, o)
	if err != nil {
		return Layer{}, err
	}
	var key buildcache.Hash
	key.Add("version", version)
	for _, p := range packages {
		key.Add(p.File, p.SHA256)
	}
	result, err := cache.Do(ctx, buildcache.Job{Kind: "worklayer", Key: key.Sum(), Notice: o.Notice, Build: func(ctx context.Context, dir string) error {
		return build(ctx, cache, o, packages, dir)
	}})
	if err != nil {
		return Layer{}, err
	}
	layer := Layer{File: filepath.Join(result.Dir, imageName), Hit: result.Hit}
	raw, err := os.ReadFile(filepath.Join(result.Dir, recordName))
	if err == nil {
		err = json.Unmarshal(raw, &layer)
	}
	if err != nil {
		return Layer{}, fmt.Errorf("cannot read the record of a layer: %w", err)
	}
	return layer, nil
}

// build makes the image and its record in dir.
func build(ctx context.Context, cache *buildcache.Cache, o Options, packages []Package, dir string) error {
	root, err := os.MkdirTemp("", "berth-worklayer-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for a layer: %w", err)
	}
	defer os.RemoveAll(root)
	for i, p := range packages {
		o.Notice(fmt.Sprintf("package %d of %d: %s %s", i+1, len(packages), p.Name, p.Version))
		file, err := download(ctx, cache, p)
		if err != nil {
			return err
		}
		if err := unpack(ctx, file, root); err != nil {
			return err
		}
	}
	if err := finish(ctx, root); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(dir, imageName))
	if err != nil {
		return fmt.Errorf("cannot write a layer: %w", err)
	}
	defer out.Close()
	layer := Layer{Packages: packages}
	if layer.Digest, layer.Size, err = appimage.Build(out, root); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("cannot write a layer: %w", err)
	}
	var record bytes.Buffer
	enc := json.NewEncoder(&record)
	enc.SetIndent("", "  ")
	if err := enc.Encode(layer); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordName), record.Bytes(), 0o644)
}

// download returns the verified file of a package.
func download(ctx context.Context, cache *buildcache.Cache, p Package) (string, error) {
	unlock, err := cache.Lock(ctx, "deb-"+p.SHA256, func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	size, err := strconv.ParseInt(p.Bytes, 10, 64)
	if err != nil {
		return "", fmt.Errorf("cannot fetch %s: apt gives its size as %q", p.File, p.Bytes)
	}
	sources := []string{p.URI}
	if mirror := os.Getenv(kbuild.EnvMirror); mirror != "" {
		sources = append([]string{mirror + "/" + p.pool()}, sources...)
	}
	file := cache.Download(p.File)
	if err := fetch.File(ctx, file, fetch.Want{SHA256: p.SHA256, Size: size}, sources, nil); err != nil {
		return "", hint.Errorf("run apt-get update, or set "+kbuild.EnvMirror+" to a Debian mirror", "%w", err)
	}
	return file, nil
}

// Unpack writes a layer into an empty folder.
func (l Layer) Unpack(dir string) error {
	f, err := os.Open(l.File)
	if err != nil {
		return err
	}
	defer f.Close()
	return appimage.Unpack(f, dir, l.Digest, l.Size)
}

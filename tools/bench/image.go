package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/berthos/berth/tools/imagebuild"
)

const mb = 1e6

// sizes are what a user downloads and what is hashed at each boot.
func (b *bench) sizes(context.Context) error {
	sizes, err := imagebuild.Sizes(b.image)
	if err != nil {
		return err
	}
	var raw, compressed int64
	for _, s := range sizes {
		b.add(figure{Name: s.File + ", raw", Value: float64(s.Raw) / mb, Unit: "MB"},
			figure{Name: s.File + ", compressed", Value: float64(s.Compressed) / mb, Unit: "MB"})
		raw, compressed = raw+s.Raw, compressed+s.Compressed
	}
	b.add(figure{Name: "image, raw", Value: float64(raw) / mb, Unit: "MB"},
		figure{Name: "image, compressed", Value: float64(compressed) / mb, Unit: "MB", Target: "<= 25"})
	return nil
}

// boot counts the instructions from reset to the first of PID 1: our kernel
// and Debian's, same PID 1, same machine model, same options.
func (b *bench) boot(ctx context.Context) error {
	initrd, err := initramfs(ctx, b.work)
	if err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	cloud, version, err := cloudKernel(ctx, cache)
	if err != nil {
		return err
	}
	ours, err := instructions(ctx, filepath.Join(b.image, imagebuild.KernelFile), initrd)
	if err != nil {
		return err
	}
	theirs, err := instructions(ctx, cloud, initrd)
	if err != nil {
		return err
	}
	b.add(figure{Name: "guest instructions to PID 1", Value: float64(ours) / 1e6, Unit: "M",
		Peer: float64(theirs) / 1e6, PeerIs: "Debian " + version, Target: "ratio <= 0.25"})
	return nil
}

// cacheDir keeps the peer kernel between runs.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "berth", "bench")
	return dir, os.MkdirAll(dir, 0o755)
}

// builds times make image with nothing changed, and from nothing if asked to.
func (b *bench) builds(ctx context.Context) error {
	warm, err := timed(ctx, "bin/mkimage", "-o", b.image)
	if err != nil {
		return err
	}
	b.add(figure{Name: "make image, nothing changed", Value: warm, Unit: "s", Target: "<= 5"})
	if !b.cold {
		return nil
	}
	cold, err := timed(ctx, "bin/mkimage", "-cache", filepath.Join(b.work, "cache"), "-o", filepath.Join(b.work, "image"))
	if err != nil {
		return err
	}
	b.add(figure{Name: "make image, from nothing", Value: cold / 60, Unit: "min", Target: "<= 12"})
	return nil
}

func timed(ctx context.Context, name string, args ...string) (seconds float64, err error) {
	start := time.Now()
	err = command(ctx, "", name, args...)
	return time.Since(start).Seconds(), err
}

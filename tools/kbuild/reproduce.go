package kbuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berthos/berth/tools/buildcache"
)

// Reproduce builds the kernel twice, from two unpacked sources into two output
// folders below dir, all of them named differently, and returns the sha256 of
// each file of the result. A file that is not the same both times is an error.
func Reproduce(ctx context.Context, opt Options, dir string) (map[string]string, error) {
	var first, second Result
	for _, r := range []struct {
		name   string
		result *Result
	}{{"first", &first}, {"the-second-time", &second}} {
		place := filepath.Join(dir, r.name)
		if err := os.MkdirAll(filepath.Join(place, "work"), 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the work folder: %w", err)
		}
		opt.WorkDir = filepath.Join(place, "work")
		var err error
		if *r.result, err = BuildIn(ctx, opt, filepath.Join(place, "out")); err != nil {
			return nil, err
		}
	}
	return same(first.Dir, second.Dir, filepath.Base(first.VMLinux), configFile, mapFile, inputsFile)
}

func same(a, b string, names ...string) (map[string]string, error) {
	digests := map[string]string{}
	for _, name := range names {
		da, err := buildcache.HashFile(filepath.Join(a, name))
		if err != nil {
			return nil, fmt.Errorf("cannot compare two builds: %w", err)
		}
		db, err := buildcache.HashFile(filepath.Join(b, name))
		if err != nil {
			return nil, fmt.Errorf("cannot compare two builds: %w", err)
		}
		if da != db {
			return nil, fmt.Errorf("cannot reproduce %s: the first build has sha256 %s, the second %s", name, da, db)
		}
		digests[name] = da
	}
	return digests, nil
}

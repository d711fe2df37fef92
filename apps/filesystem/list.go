package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
)

type listIn struct {
	Path  string `json:"path,omitempty" jsonschema:"the folder; default: the workspace"`
	Sizes bool   `json:"sizes,omitempty" jsonschema:"add sizes and times"`
	Sort  string `json:"sort,omitempty" jsonschema:"name (default), or with sizes: size (largest first) or modified (newest first)"`
	Limit int    `json:"limit,omitempty" jsonschema:"at most so many entries, default and maximum 10000"`
}

type listOut struct {
	Path      string  `json:"path"`
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated" jsonschema:"the folder has more entries; which of them are listed is not defined"`
	Notice    string  `json:"notice,omitempty"`
}

type entry struct {
	Name     string `json:"name"`
	Type     string `json:"type" jsonschema:"file, directory, symlink or other"`
	Size     *int64 `json:"size,omitempty" jsonschema:"of a file, in bytes"`
	Modified string `json:"modified,omitempty"`
	modified time.Time
}

func (f files) listDirectory(ctx context.Context, in listIn) (listOut, error) {
	path, err := f.askedDir(in.Path)
	if err != nil {
		return listOut{}, err
	}
	order, err := in.order()
	if err != nil {
		return listOut{}, err
	}
	limit, err := bounded("limit", in.Limit, maxEntries)
	if err != nil {
		return listOut{}, err
	}
	found, more, err := readDir(path, limit, maxListed, nil)
	if err != nil {
		return listOut{}, berth.Reading(err)
	}
	out := listOut{Path: shown(path), Entries: []entry{}, Truncated: more}
	for _, d := range found {
		e := entry{Name: shown(d.Name()), Type: kind(d.Type())}
		if in.Sizes {
			e.stat(d)
		}
		out.Entries = append(out.Entries, e)
	}
	slices.SortStableFunc(out.Entries, order)
	if more {
		out.Notice = fmt.Sprintf("cut after %d entries; the folder has more", len(out.Entries))
	}
	return out, ctx.Err()
}

// stat adds what only a second look tells; an entry that is gone stays bare.
func (e *entry) stat(d fs.DirEntry) {
	info, err := d.Info()
	if err != nil {
		return
	}
	e.modified, e.Modified = info.ModTime(), stamp(info.ModTime())
	if info.Mode().IsRegular() {
		size := info.Size()
		e.Size = &size
	}
}

func (in listIn) order() (func(a, b entry) int, error) {
	switch {
	case in.Sort == "" || in.Sort == "name":
		return func(a, b entry) int { return cmp.Compare(a.Name, b.Name) }, nil
	case in.Sort != "size" && in.Sort != "modified":
		return nil, berth.Errorf(protocol.CodeInvalidInput, "input /sort: %.20q is not name, size or modified", in.Sort)
	case !in.Sizes:
		return nil, berth.Errorf(protocol.CodeInvalidInput, "input /sort: %s needs sizes", in.Sort)
	case in.Sort == "size":
		return func(a, b entry) int { return cmp.Compare(bytesOf(b), bytesOf(a)) }, nil
	}
	return func(a, b entry) int { return b.modified.Compare(a.modified) }, nil
}

func bytesOf(e entry) int64 {
	if e.Size == nil {
		return 0
	}
	return *e.Size
}

// readDir reads at most limit entries, whose names have at most budget bytes,
// and sorts them. It takes no memory for more, nor for those that skip names.
func readDir(path string, limit, budget int, skip func(name string) bool) (found []fs.DirEntry, more bool, err error) {
	err = eachEntry(path, func(d fs.DirEntry) bool {
		if skip != nil && skip(d.Name()) {
			return true
		}
		budget -= len(d.Name())
		if more = len(found) == limit || budget < 0; !more {
			found = append(found, d)
		}
		return !more
	})
	slices.SortFunc(found, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return found, more, err
}

// eachEntry calls f for each entry of a folder, in no order, until f says false.
// It holds a few of them at a time: a folder can have millions.
func eachEntry(path string, f func(fs.DirEntry) bool) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		some, err := dir.ReadDir(256)
		for _, d := range some {
			if !f(d) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func bounded(name string, value, most int) (int, error) {
	switch {
	case value == 0:
		return most, nil
	case value < 0 || value > most:
		return 0, berth.Errorf(protocol.CodeInvalidInput, "input /%s: %d is not between 1 and %d", name, value, most)
	}
	return value, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/berthos/berth/host/hint"
)

// Places are what a machine that mounts a folder, instead of having it served,
// must cover, as slash-separated places below it.
type Places struct {
	Hidden    []string // excluded names
	Protected []string // names that hosts execute
	Setuid    []string // files that run as their owner or group; they are not in Protected
	Cut       bool     // the folder is so large that not all of it was looked at
}

// Limits of a search: entries looked at when something is excluded, which must
// be complete, and when it is for protection only; and places found.
const (
	maxLooked    = 5_000_000
	maxProtect   = 50_000
	maxPlaces    = 1000
	maxDepth     = 200 // levels: each is a step of every look below it
	askContextAt = 1 << 10
)

// Search says what to look for.
type Search struct {
	Exclude      []string
	HostExecuted []string // names; nil: none
	// Setuid looks for files with the bits 06000. A guest may change what such a
	// file holds through a mapping, and the bits stay.
	Setuid bool
}

// FindPlaces searches a folder without following symlinks. Names that are made
// later are not covered: a server would have refused them.
func FindPlaces(ctx context.Context, root string, s Search) (Places, error) {
	n, err := newNames(s.Exclude, s.HostExecuted)
	if err != nil {
		return Places{}, err
	}
	var p Places
	if len(s.Exclude) == 0 && len(s.HostExecuted) == 0 && !s.Setuid {
		return p, nil
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return p, fmt.Errorf("cannot search %s: %w", root, err)
	}
	defer dir.Close()
	looked := 0
	top, err := dir.Stat(".")
	if err == nil {
		err = walk(dir, ".", fs.FileInfoToDirEntry(top), func(rel string, d fs.DirEntry, err error) error {
			if looked++; looked%askContextAt == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return p.look(n, rel, d, err, looked, s.Setuid)
		})
	}
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return p, fmt.Errorf("cannot search %s: %w", root, err)
	}
	return p, nil
}

// walk is fs.WalkDir for folders whose names need not be UTF-8: io/fs refuses
// those, and an app can make them.
func walk(dir *os.Root, rel string, d fs.DirEntry, visit fs.WalkDirFunc) error {
	err := visit(rel, d, nil)
	if err != nil || !d.IsDir() {
		return unlessSkipped(err)
	}
	entries, err := list(dir, rel)
	if err != nil {
		return unlessSkipped(visit(rel, d, err))
	}
	for _, e := range entries {
		if err := walk(dir, path.Join(rel, e.Name()), e, visit); err != nil {
			return err
		}
	}
	return nil
}

func unlessSkipped(err error) error {
	if errors.Is(err, fs.SkipDir) {
		return nil
	}
	return err
}

// list returns the entries of a folder by name.
func list(dir *os.Root, rel string) ([]fs.DirEntry, error) {
	f, err := dir.OpenFile(rel, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// below reports whether a place above rel is protected already. The search is in
// order, so it would be the last one.
func (p *Places) below(rel string) bool {
	return len(p.Protected) > 0 && strings.HasPrefix(rel, p.Protected[len(p.Protected)-1]+"/")
}

// look judges one entry.
func (p *Places) look(n *names, rel string, d fs.DirEntry, err error, looked int, setuid bool) error {
	switch {
	case rel == ".":
		return err
	case err != nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)):
		return nil // a folder that we cannot read; or one that has just gone
	case err != nil:
		return err
	case strings.Count(rel, "/") >= maxDepth && len(n.exclude) > 0:
		return fmt.Errorf("it has more than %d levels of folders", maxDepth)
	case strings.Count(rel, "/") >= maxDepth:
		p.Cut = true
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	case looked > maxLooked:
		return fmt.Errorf("it has more than %d entries", maxLooked)
	case len(n.exclude) == 0 && looked > maxProtect:
		p.Cut = true
		return fs.SkipAll
	}
	switch {
	case n.hidden(rel):
		p.Hidden = append(p.Hidden, rel)
	case d.Type()&fs.ModeSymlink != 0:
		return nil // covering it would cover what it points to, which is not ours
	case n.protected(rel, d.IsDir()) && !p.below(rel):
		p.Protected = append(p.Protected, rel)
		if len(n.exclude) > 0 {
			return p.bounded(nil) // something may be hidden below
		}
	case setuid && isSetuid(d) && !p.below(rel):
		p.Setuid = append(p.Setuid, rel)
	default:
		return nil
	}
	if d.IsDir() {
		return p.bounded(fs.SkipDir)
	}
	return p.bounded(nil)
}

// bounded ends a search that has found too much.
func (p *Places) bounded(next error) error {
	if len(p.Hidden)+len(p.Protected)+len(p.Setuid) > maxPlaces {
		return hint.Errorf("share a smaller folder, or use a machine with a file server: --machine qemu",
			"more than %d places would have to be covered", maxPlaces)
	}
	return next
}

// isSetuid reports whether a regular file runs as its owner or group.
func isSetuid(d fs.DirEntry) bool {
	if !d.Type().IsRegular() {
		return false
	}
	info, err := d.Info()
	return err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0
}

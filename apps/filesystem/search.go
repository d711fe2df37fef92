package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
	"github.com/bmatcuk/doublestar/v4"
)

type searchIn struct {
	Path     string   `json:"path,omitempty" jsonschema:"the folder to search; default: the workspace"`
	Pattern  string   `json:"pattern" jsonschema:"glob; ** is any number of folders; without a slash it is matched against names at any depth"`
	Excludes []string `json:"excludes,omitempty" jsonschema:"glob patterns; an excluded folder is not searched"`
	Type     string   `json:"type,omitempty" jsonschema:"only file, directory, symlink or other"`
	Limit    int      `json:"limit,omitempty" jsonschema:"at most so many matches, default 1000, maximum 10000"`
}

type searchOut struct {
	Path       string   `json:"path"`
	Matches    []string `json:"matches" jsonschema:"paths below path, sorted"`
	Visited    int      `json:"visited" jsonschema:"how many entries were looked at"`
	Truncated  bool     `json:"truncated" jsonschema:"the search ended early"`
	Unreadable []string `json:"unreadable,omitempty" jsonschema:"folders that could not be searched, the first 20"`
	Notice     string   `json:"notice,omitempty"`
}

const defaultMatches = 1000

func (f files) searchFiles(ctx context.Context, in searchIn) (searchOut, error) {
	dir, err := f.askedDir(in.Path)
	if err != nil {
		return searchOut{}, err
	}
	if in.Limit == 0 {
		in.Limit = defaultMatches
	}
	limit, err := bounded("limit", in.Limit, maxEntries)
	if err != nil {
		return searchOut{}, err
	}
	want, err := patterns("pattern", in.Pattern)
	if err != nil {
		return searchOut{}, err
	}
	excludes, err := patterns("excludes", in.Excludes...)
	if err != nil {
		return searchOut{}, err
	}
	s := search{ctx: ctx, want: want, excludes: excludes, kind: in.Type, limit: limit, bytes: maxListed,
		out: searchOut{Path: shown(dir), Matches: []string{}}}
	if err := s.walk(dir, ""); err != nil {
		return searchOut{}, berth.Reading(err)
	}
	slices.Sort(s.out.Matches)
	if s.out.Truncated {
		s.out.Notice = fmt.Sprintf("cut after %d matches; there may be more", len(s.out.Matches))
	}
	return s.out, nil
}

type search struct {
	ctx      context.Context
	want     []glob
	excludes []glob
	kind     string
	limit    int
	bytes    int
	out      searchOut
}

// walk searches one folder and those below it. Links are not followed. Only the
// folder that was asked for must be readable.
func (s *search) walk(dir, rel string) error {
	folders, err := s.folder(dir, rel)
	if err != nil {
		if rel == "" || s.ctx.Err() != nil {
			return err
		}
		if len(s.out.Unreadable) < 20 {
			s.out.Unreadable = append(s.out.Unreadable, shown(rel))
		}
		return nil
	}
	for _, name := range folders {
		if s.out.Truncated {
			return nil
		}
		if err := s.walk(join(dir, name), below(rel, name)); err != nil {
			return err
		}
	}
	return s.ctx.Err()
}

// folder looks at the entries of one folder and returns the folders in it.
func (s *search) folder(dir, rel string) ([]string, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	var folders []string
	err := eachEntry(dir, func(d fs.DirEntry) bool {
		at := below(rel, d.Name())
		if s.out.Visited++; s.out.Visited%10_000 == 0 {
			berth.Progress(s.ctx, float64(s.out.Visited), 0, "entries searched")
		}
		if matchesAny(s.excludes, at) {
			return s.ctx.Err() == nil
		}
		if d.IsDir() {
			folders = append(folders, d.Name())
		}
		return s.add(d, at) && s.ctx.Err() == nil
	})
	slices.Sort(folders)
	return folders, err
}

// add takes an entry if it matches; false means that there is no room.
func (s *search) add(d fs.DirEntry, at string) bool {
	if s.kind != "" && s.kind != kind(d.Type()) || !matchesAny(s.want, at) {
		return true
	}
	if s.bytes -= len(at); len(s.out.Matches) == s.limit || s.bytes < 0 {
		s.out.Truncated = true
		return false
	}
	s.out.Matches = append(s.out.Matches, shown(at))
	return true
}

// glob is a checked pattern.
type glob struct {
	pattern string
	names   bool // matched against names, not paths
}

func patterns(field string, all ...string) ([]glob, error) {
	var globs []glob
	for _, p := range all {
		switch {
		case p == "" || len(p) > maxPattern:
			return nil, berth.Errorf(protocol.CodeInvalidInput, "input /%s: a pattern has 1 to %d bytes", field, maxPattern)
		case strings.Count(p, "{") > 8 || strings.Count(p, "**") > 8:
			return nil, berth.Errorf(protocol.CodeInvalidInput, "input /%s: %.60q has more than 8 alternatives in braces or **", field, p)
		case !doublestar.ValidatePattern(p):
			return nil, berth.Errorf(protocol.CodeInvalidInput, "input /%s: %.60q is not a glob pattern", field, p)
		}
		p = strings.TrimSuffix(p, "/")
		globs = append(globs, glob{pattern: strings.TrimPrefix(p, "./"), names: !strings.Contains(p, "/")})
	}
	return globs, nil
}

func matchesAny(globs []glob, at string) bool {
	for _, g := range globs {
		text := at
		if g.names {
			text = path.Base(at)
		}
		if doublestar.MatchUnvalidated(g.pattern, text) {
			return true
		}
	}
	return false
}

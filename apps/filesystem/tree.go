package main

import (
	"context"
	"fmt"

	berth "github.com/berthos/berth/sdk/go"
)

type treeIn struct {
	Path     string   `json:"path,omitempty" jsonschema:"the folder; default: the workspace"`
	Depth    int      `json:"depth,omitempty" jsonschema:"how many levels, default and maximum 64"`
	Excludes []string `json:"excludes,omitempty" jsonschema:"glob patterns of what to leave out, as in search_files"`
	Limit    int      `json:"limit,omitempty" jsonschema:"at most so many entries in all, default and maximum 10000"`
}

type treeOut struct {
	Path      string `json:"path"`
	Entries   []any  `json:"entries" jsonschema:"objects with name, type and, for a folder, entries; truncated or error says why a folder's entries are missing"`
	Count     int    `json:"count" jsonschema:"entries in the whole tree"`
	Truncated bool   `json:"truncated" jsonschema:"there are more"`
	Notice    string `json:"notice,omitempty"`
}

// node is one entry of a tree. Its own type would be a cycle in a JSON Schema,
// so the entries are of any type.
type node struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Entries   []any  `json:"entries,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (f files) directoryTree(ctx context.Context, in treeIn) (treeOut, error) {
	path, err := f.askedDir(in.Path)
	if err != nil {
		return treeOut{}, err
	}
	depth, err := bounded("depth", in.Depth, maxDepth)
	if err != nil {
		return treeOut{}, err
	}
	limit, err := bounded("limit", in.Limit, maxEntries)
	if err != nil {
		return treeOut{}, err
	}
	excludes, err := patterns("excludes", in.Excludes...)
	if err != nil {
		return treeOut{}, err
	}
	t := tree{ctx: ctx, excludes: excludes, left: limit, bytes: maxListed}
	root := node{}
	t.fill(&root, path, "", depth)
	if t.err != nil {
		return treeOut{}, berth.Reading(t.err)
	}
	out := treeOut{Path: shown(path), Entries: root.Entries, Count: limit - t.left, Truncated: t.cut}
	if out.Entries == nil {
		out.Entries = []any{}
	}
	if t.cut {
		out.Notice = fmt.Sprintf("cut: %d entries are shown, folders marked truncated have more", out.Count)
	}
	return out, ctx.Err()
}

type tree struct {
	ctx      context.Context
	excludes []glob
	left     int // entries that may still come
	bytes    int // bytes of their names
	cut      bool
	err      error // of the folder that was asked for
}

// fill reads the folder at path, which is rel from the top ("" for the top
// itself), into n.
func (t *tree) fill(n *node, path, rel string, depth int) {
	if t.ctx.Err() != nil {
		return
	}
	excluded := func(name string) bool { return matchesAny(t.excludes, below(rel, name)) }
	found, more, err := readDir(path, t.left, t.bytes, excluded)
	if err != nil {
		if rel == "" {
			t.err = err
		}
		n.Error = err.Error()
		return
	}
	n.Truncated, t.cut = more, t.cut || more
	children := make([]*node, 0, len(found))
	names := make([]string, 0, len(found))
	for _, d := range found {
		child := &node{Name: shown(d.Name()), Type: kind(d.Type())}
		children, names = append(children, child), append(names, d.Name())
		n.Entries = append(n.Entries, child)
		t.left--
		t.bytes -= len(d.Name())
	}
	for i, child := range children {
		if child.Type != "directory" {
			continue
		}
		if depth == 1 {
			child.Truncated, t.cut = true, true
			continue
		}
		t.fill(child, join(path, names[i]), below(rel, names[i]), depth-1)
	}
}

func below(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}

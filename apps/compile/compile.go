// Package compile owns the step from a manifest to the policy that the kernel
// enforces. It is pure: the same manifest and code give the same bytes.
package compile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// Note is something about a manifest that its author should know but that does
// not stop the app. Text is one line.
type Note struct {
	manifest.Pos
	Text string
}

var codeDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Compile returns the policy of m for the app image with the digest code
// ("sha256:<hex>"). What m asks for and this version does not enforce is an
// error of type manifest.Errors that names all of it; nothing is ever granted
// beyond what m declares.
func Compile(m manifest.Manifest, code string) (policy.Policy, []Note, error) {
	if !codeDigest.MatchString(code) {
		return policy.Policy{}, nil, fmt.Errorf("cannot compile app %q: %q is not a digest of its code", m.Name, code)
	}
	c := &compiler{m: m}
	c.unbuilt()
	p := policy.Policy{
		Schema:  policy.Schema,
		App:     m.Name,
		Version: m.Version,
		Code:    code,
		Argv:    argv(m),
		Class:   policy.ClassBase,
		Paths:   []policy.Path{},
		Connect: []uint16{},
		Bind:    []uint16{},
		Limits:  policy.Limits{CPUMilli: m.Resources.CPUMilli, MemoryMB: m.Resources.MemoryMB, Pids: m.Resources.Pids},
		Exports: exports(m),
	}
	for _, of := range m.Capabilities {
		// A manifest that was put together by hand is held to the grammar too.
		if _, err := manifest.ParseCapability(of.String()); err != nil {
			c.fail(of.Pos, "", "%s", err)
			continue
		}
		c.capability(&p, of)
	}
	p.Paths = c.collapse(p.Paths)
	p.Connect, p.Bind = unique(p.Connect), unique(p.Bind)
	if len(p.Connect)+len(p.Bind) > 0 {
		p.Class = policy.ClassNetwork
	}
	if len(c.faults) > 0 {
		return policy.Policy{}, nil, c.faults.Sorted()
	}
	if err := p.Check(); err != nil {
		return policy.Policy{}, nil, err
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col)) })
	return p, c.notes, nil
}

// argv defaults to the static executable that is named like the app.
func argv(m manifest.Manifest) []string {
	if len(m.Run) > 0 {
		return slices.Clone(m.Run)
	}
	return []string{"/app/" + m.Name}
}

func exports(m manifest.Manifest) []string {
	names := make([]string, 0, len(m.Exports))
	for _, e := range m.Exports {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

func unique(ports []uint16) []uint16 {
	slices.Sort(ports)
	return slices.Compact(ports)
}

type compiler struct {
	m      manifest.Manifest
	faults manifest.Errors
	notes  []Note
}

func (c *compiler) fail(at manifest.Pos, hint, format string, args ...any) {
	c.faults = append(c.faults, manifest.Error{File: c.m.File, Pos: at, Msg: fmt.Sprintf(format, args...), Hint: hint})
}

func (c *compiler) note(at manifest.Pos, format string, args ...any) {
	c.notes = append(c.notes, Note{at, fmt.Sprintf(format, args...)})
}

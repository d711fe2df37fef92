// Package compile owns the step from a manifest to the policy that the kernel
// enforces. It is pure: the same manifest and code give the same bytes.
package compile

import (
	"cmp"
	"fmt"
	"reflect"
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
		Rights:  c.rights(m.Capabilities, secretNames(m), m.HostExecuted),
		Limits:  policy.Limits{CPUMilli: m.Resources.CPUMilli, MemoryMB: m.Resources.MemoryMB, Pids: m.Resources.Pids},
		Exports: []string{},
		Workers: []policy.Worker{},
	}
	c.noteCovered()
	c.processes(&p)
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

// rights returns what a list of capabilities allows, and nothing else.
func (c *compiler) rights(list []manifest.Capability, secrets, hostExecuted []string) policy.Rights {
	r := policy.Rights{Secrets: secrets, HostExecuted: sorted(hostExecuted)}
	for _, of := range list {
		// A manifest that was put together by hand is held to the grammar too.
		if _, err := manifest.ParseCapability(of.String()); err != nil {
			c.fail(of.Pos, "", "%s", err)
			continue
		}
		c.capability(&r, of)
	}
	r.Paths = collapse(r.Paths)
	r.Connect, r.Bind = sorted(r.Connect), sorted(r.Bind)
	r.Invoke = mergeInvokes(r.Invoke)
	return r.WithClass()
}

// processes divides the exports: those that ask for less than the app go to
// workers, one for each set of rights.
func (c *compiler) processes(p *policy.Policy) {
	for _, e := range c.m.Exports {
		if !e.Narrowed {
			p.Exports = append(p.Exports, e.Name)
			continue
		}
		quiet := &compiler{m: c.m} // what there is to say about a capability was said of the app's
		r := quiet.rights(e.Capabilities, sorted(e.Secrets), nil)
		c.addToWorker(p, e.Name, r)
	}
	slices.Sort(p.Exports)
	for i, w := range p.Workers {
		slices.Sort(w.Exports)
		p.Workers[i].Name = w.Exports[0]
	}
	slices.SortFunc(p.Workers, func(a, b policy.Worker) int { return cmp.Compare(a.Name, b.Name) })
}

func (c *compiler) addToWorker(p *policy.Policy, export string, r policy.Rights) {
	for i, w := range p.Workers {
		if reflect.DeepEqual(w.Rights, r) {
			p.Workers[i].Exports = append(w.Exports, export)
			return
		}
	}
	p.Workers = append(p.Workers, policy.Worker{Rights: r, Exports: []string{export}})
}

func secretNames(m manifest.Manifest) []string {
	var names []string
	for _, s := range m.Secrets {
		names = append(names, s.Name)
	}
	return sorted(names)
}

// sorted returns list in order and without repetitions.
func sorted[T cmp.Ordered](list []T) []T {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
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

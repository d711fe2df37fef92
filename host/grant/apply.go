package grant

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/policy"
)

// Narrowing is what a user takes away from what a manifest declares. The zero
// value takes nothing; nil lists do not narrow, empty ones leave nothing.
type Narrowing struct {
	ReadOnly bool     // the shared folders can not be changed
	Exports  []string // only these can be called
	Paths    []string // only these folders, or what is below them
}

func narrowing(g manifest.Grant) Narrowing {
	return Narrowing{ReadOnly: g.ReadOnly, Exports: g.Exports, Paths: g.Paths}
}

// Apply returns manifest ∩ grant: p, less what n takes away. It never adds.
func Apply(p policy.Policy, n Narrowing) (policy.Policy, error) {
	out := p
	out.Rights = n.rights(p.Rights)
	out.Exports = n.exports(p.Exports)
	out.Workers = []policy.Worker{}
	for _, w := range p.Workers {
		w.Rights, w.Exports = n.rights(w.Rights), n.exports(w.Exports)
		if len(w.Exports) > 0 {
			w.Name = w.Exports[0]
			out.Workers = append(out.Workers, w)
		}
	}
	slices.SortFunc(out.Workers, func(a, b policy.Worker) int { return cmp.Compare(a.Name, b.Name) })
	if n.Exports != nil && len(out.AllExports()) == 0 {
		return policy.Policy{}, fmt.Errorf("cannot narrow app %q: none of its exports is left", p.App)
	}
	return out, nil
}

// Check reports what of n names nothing of p, which is a slip of the pen.
func (n Narrowing) Check(p policy.Policy) error {
	for _, e := range n.Exports {
		if _, ok := p.Serves(e); !ok {
			return hint.Errorf("it has "+strings.Join(p.AllExports(), ", "), "cannot narrow app %q: it has no export %q", p.App, e)
		}
	}
	for _, dir := range n.Paths {
		if _, err := manifest.ParseCapability("filesystem:read:" + dir); err != nil {
			return fmt.Errorf("cannot narrow app %q: %w", p.App, err)
		}
	}
	return nil
}

func (n Narrowing) exports(list []string) []string {
	if n.Exports == nil {
		return slices.Clone(list)
	}
	left := []string{}
	for _, e := range list {
		if slices.Contains(n.Exports, e) {
			left = append(left, e)
		}
	}
	return left
}

func (n Narrowing) rights(r policy.Rights) policy.Rights {
	r.Paths = n.paths(r.Paths)
	if n.ReadOnly {
		r.HostExecuted = []string{} // nothing of a share can be written
	}
	return r.WithClass()
}

// paths meets each granted path with each that the user left, and drops what
// another covers, as the compiler does.
func (n Narrowing) paths(list []policy.Path) []policy.Path {
	met := []policy.Path{}
	for _, g := range list {
		if n.ReadOnly && !policy.Below(g.Path, "/tmp") {
			g.Access = policy.Read
		}
		if n.Paths == nil || policy.Below(g.Path, "/tmp") {
			met = append(met, g)
			continue
		}
		for _, left := range n.Paths {
			switch {
			case policy.Below(g.Path, left):
				met = append(met, g)
			case policy.Below(left, g.Path):
				met = append(met, policy.Path{Path: path.Clean(left), Access: g.Access})
			}
		}
	}
	slices.SortStableFunc(met, func(a, b policy.Path) int {
		if c := cmp.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return cmp.Compare(string(b.Access), string(a.Access)) // write before read
	})
	kept := []policy.Path{}
	for _, g := range met {
		if _, covered := policy.Covers(policy.Policy{Rights: policy.Rights{Paths: kept}}, g.Path, g.Access == policy.Write); !covered {
			kept = append(kept, g)
		}
	}
	return kept
}

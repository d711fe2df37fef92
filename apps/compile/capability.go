package compile

import (
	"cmp"
	"slices"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// capability adds to p what one capability grants.
func (c *compiler) capability(p *policy.Policy, of manifest.Capability) {
	switch of.Kind {
	case manifest.FilesystemRead:
		c.read(p, of)
	case manifest.FilesystemWrite:
		c.write(p, of)
	case manifest.NetworkConnect:
		if len(p.Connect) == 0 {
			c.note(of.Pos, "network:connect reaches only ports that the app itself has bound: nothing outside the sandbox can be connected to yet")
		}
		p.Connect = append(p.Connect, of.Port())
	case manifest.NetworkBind:
		if len(p.Bind) == 0 {
			c.note(of.Pos, "network:bind opens ports that only the app itself reaches: nothing forwards to them yet")
		}
		p.Bind = append(p.Bind, of.Port())
	default:
		c.unbuiltCapability(of)
	}
}

func (c *compiler) read(p *policy.Policy, of manifest.Capability) {
	switch {
	case policy.Below(of.Scope, "/context"):
		c.unbuiltCapability(of)
	case policy.Below(of.Scope, "/app"):
		c.note(of.Pos, "%s has no effect: an app can always read its own code", of)
	default:
		p.Paths = append(p.Paths, policy.Path{Path: of.Scope, Access: policy.Read})
	}
}

func (c *compiler) write(p *policy.Policy, of manifest.Capability) {
	switch {
	case policy.Below(of.Scope, "/context"):
		c.unbuiltCapability(of)
	case policy.Below(of.Scope, "/app"):
		c.fail(of.Pos, "write below /workspace, or to the scratch folder in $TMPDIR, which needs no capability", "%s can not be granted: the app's code is read-only", of)
	default:
		p.Paths = append(p.Paths, policy.Path{Path: of.Scope, Access: policy.Write})
	}
}

// collapse sorts paths and drops each that another covers with at least its
// access: rights add up, so it would grant nothing, and an enforcer that makes
// a read-only mount of it would take something away.
func (c *compiler) collapse(paths []policy.Path) []policy.Path {
	slices.SortStableFunc(paths, func(a, b policy.Path) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(rank(b), rank(a)))
	})
	kept := []policy.Path{}
	for _, g := range paths {
		if _, covered := policy.Covers(policy.Policy{Paths: kept}, g.Path, g.Access == policy.Write); !covered {
			kept = append(kept, g)
		}
	}
	c.noteCovered()
	return kept
}

func rank(g policy.Path) int {
	if g.Access == policy.Write {
		return 1
	}
	return 0
}

// noteCovered names each capability that another one makes superfluous, and
// the widest of those that do.
func (c *compiler) noteCovered() {
	list := c.m.Capabilities
	for i, of := range list {
		widest := -1
		for j, by := range list {
			same := by.Kind == of.Kind && by.Scope == of.Scope
			if i == j || !by.Covers(of) || same && j > i {
				continue
			}
			if widest < 0 || by.Covers(list[widest]) && !list[widest].Covers(by) {
				widest = j
			}
		}
		if widest >= 0 {
			c.note(of.Pos, "%s has no effect: %s on line %d covers it", of, list[widest], list[widest].Line)
		}
	}
}

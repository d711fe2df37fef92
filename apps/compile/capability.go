package compile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// capability adds to r what one capability grants.
func (c *compiler) capability(r *policy.Rights, of manifest.Capability) {
	switch of.Kind {
	case manifest.FilesystemRead:
		c.read(r, of)
	case manifest.FilesystemWrite:
		c.write(r, of)
	case manifest.TerminalAttach:
		r.Terminal = true
	case manifest.AppInvoke:
		c.invoke(r, of)
	case manifest.NetworkConnect:
		if len(r.Connect) == 0 {
			c.note(of.Pos, "network:connect reaches only ports that the app itself has bound: nothing outside the sandbox can be connected to yet")
		}
		r.Connect = append(r.Connect, of.Port())
	case manifest.NetworkBind:
		if len(r.Bind) == 0 {
			c.note(of.Pos, "network:bind opens ports that only the app itself reaches: nothing forwards to them yet")
		}
		r.Bind = append(r.Bind, of.Port())
	default:
		c.unbuiltCapability(of)
	}
}

func (c *compiler) read(r *policy.Rights, of manifest.Capability) {
	switch {
	case policy.Below(of.Scope, "/context"):
		c.unbuiltCapability(of)
	case policy.Below(of.Scope, "/app"):
		c.note(of.Pos, "%s has no effect: an app can always read its own code", of)
	default:
		r.Paths = append(r.Paths, policy.Path{Path: of.Scope, Access: policy.Read})
	}
}

func (c *compiler) write(r *policy.Rights, of manifest.Capability) {
	switch {
	case policy.Below(of.Scope, "/context"):
		c.unbuiltCapability(of)
	case policy.Below(of.Scope, "/app"):
		c.fail(of.Pos, "write below /workspace, or to the scratch folder in $TMPDIR, which needs no capability", "%s can not be granted: the app's code is read-only", of)
	default:
		r.Paths = append(r.Paths, policy.Path{Path: of.Scope, Access: policy.Write})
	}
}

// invoke adds one app, or one export of it, that may be called.
func (c *compiler) invoke(r *policy.Rights, of manifest.Capability) {
	app, export, single := strings.Cut(of.Scope, ".")
	if app == c.m.Name {
		c.fail(of.Pos, "remove the line, and call the function itself", "%s: an app does not call itself through the sandbox", of)
		return
	}
	to := policy.Invoke{App: app, Exports: []string{}}
	if single {
		to.Exports = append(to.Exports, export)
	}
	r.Invoke = append(r.Invoke, to)
}

// mergeInvokes returns one entry for each app. One without exports allows all.
func mergeInvokes(list []policy.Invoke) []policy.Invoke {
	slices.SortStableFunc(list, func(a, b policy.Invoke) int { return cmp.Compare(a.App, b.App) })
	var merged []policy.Invoke
	for _, to := range list {
		if n := len(merged); n > 0 && merged[n-1].App == to.App {
			last := &merged[n-1]
			if len(last.Exports) == 0 || len(to.Exports) == 0 {
				last.Exports = []string{}
			} else {
				last.Exports = sorted(append(last.Exports, to.Exports...))
			}
			continue
		}
		merged = append(merged, to)
	}
	return merged
}

// collapse sorts paths and drops each that another covers with at least its
// access: rights add up, so it would grant nothing, and an enforcer that makes
// a read-only mount of it would take something away.
func collapse(paths []policy.Path) []policy.Path {
	slices.SortStableFunc(paths, func(a, b policy.Path) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(rank(b), rank(a)))
	})
	kept := []policy.Path{}
	for _, g := range paths {
		if _, covered := policy.Covers(policy.Policy{Rights: policy.Rights{Paths: kept}}, g.Path, g.Access == policy.Write); !covered {
			kept = append(kept, g)
		}
	}
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

package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berthos/berth/init/policy"
)

// grant is one place of the app's tree that Landlock opens. FD refers to the
// mount or folder itself, from the moment it was taken: a path would have to be
// looked up again, and might lead elsewhere by then.
type grant struct {
	Path string `json:"path"`
	Kind kind   `json:"kind"`
	FD   int    `json:"fd"`
}

// kind names a set of Landlock rights (landlock.go).
type kind string

const (
	kindRead      kind = "read"       // a folder to read
	kindWrite     kind = "write"      // a folder to read and change
	kindReadFile  kind = "read-file"  // a file to read
	kindWriteFile kind = "write-file" // a file to read and change
	kindCode      kind = "code"       // a folder to read and execute
	kindDevice    kind = "device"     // one of the harmless device nodes
	kindTerminals kind = "terminals"  // the folder of the app's pseudo terminals
	kindNone      kind = ""           // it exists, and nothing of it is opened
)

// bind is one granted part of a share at one place of the app's tree.
type bind struct {
	capability string // as in the manifest, for errors
	source     string // root of the share in PID 1's tree
	rel        string // below source; "." is the root
	target     string // absolute path in the app's tree
	write      bool   // granted; the share may be read-only all the same
	readOnly   bool   // the mount is read-only
}

// layout is what the policy's paths come to: parts of shares to bind, and
// folders below /tmp.
type layout struct {
	binds []bind
	plain []policy.Path // folders of the app's own tree: /workspace above shares, /tmp
}

// String counts the places and names those that can be written less than asked.
func (l layout) String() string {
	s := fmt.Sprintf("%d of shares, %d of its own", len(l.binds), len(l.plain))
	for _, b := range l.binds {
		if b.write && b.readOnly {
			s += fmt.Sprintf("; %s is read-only, as its share is", b.target)
		}
	}
	return s
}

func capabilityOf(g policy.Path) string {
	return fmt.Sprintf("filesystem:%s:%s", g.Access, g.Path)
}

// lay decides where each granted path of p comes from. It does no I/O.
func lay(p policy.Policy, shares []Share) (layout, error) {
	var l layout
	if err := checkShares(shares); err != nil {
		return l, err
	}
	for _, g := range p.Paths {
		if !cleanAbs(g.Path) || (g.Access != policy.Read && g.Access != policy.Write) {
			return l, fmt.Errorf("%s: not a path and an access", capabilityOf(g))
		}
		if err := l.add(p, g, shares); err != nil {
			return l, fmt.Errorf("%s: %w", capabilityOf(g), err)
		}
	}
	// Parents first, so that a nested grant is mounted on top of its parent.
	slices.SortStableFunc(l.binds, func(a, b bind) int {
		return cmp.Or(cmp.Compare(strings.Count(a.target, "/"), strings.Count(b.target, "/")), cmp.Compare(a.target, b.target))
	})
	return l, l.unique()
}

func (l *layout) add(p policy.Policy, g policy.Path, shares []Share) error {
	switch {
	case g.Path == "/app" || below(g.Path, "/app"):
		if g.Access == policy.Write {
			return errors.New("/app is read-only")
		}
		return nil // granted to every app
	case g.Path == "/tmp" || below(g.Path, "/tmp"):
		l.plain = append(l.plain, g)
		return nil
	case g.Path == "/workspace" || below(g.Path, "/workspace"):
		return l.addShared(p, g, shares)
	case g.Path == "/context" || below(g.Path, "/context"):
		return errors.New("/context is not built yet")
	}
	return errors.New("a scope may only name /workspace, /context, /tmp or /app")
}

// addShared binds what g covers: a part of the innermost share around it, and
// every share below it.
func (l *layout) addShared(p policy.Policy, g policy.Path, shares []Share) error {
	found := false
	if s, ok := innermost(shares, g.Path); ok {
		l.bindAt(p, g, s, strings.TrimPrefix(strings.TrimPrefix(g.Path, s.Path), "/"))
		found = true
	} else {
		l.plain = append(l.plain, policy.Path{Path: g.Path, Access: policy.Read})
	}
	for _, s := range shares {
		if below(s.Path, g.Path) {
			l.bindAt(p, g, s, "")
			found = true
		}
	}
	if !found {
		return errors.New("no share covers it")
	}
	return nil
}

// bindAt binds one part of a share under its path and each alias. A grant that
// lies inside a write grant may write too: capabilities add up.
func (l *layout) bindAt(p policy.Policy, g policy.Path, s Share, rel string) {
	target := path.Join(s.Path, rel)
	write := slices.ContainsFunc(p.Paths, func(o policy.Path) bool {
		return o.Access == policy.Write && (o.Path == target || below(target, o.Path))
	})
	for _, at := range append([]string{s.Path}, s.Aliases...) {
		l.binds = append(l.binds, bind{
			capability: capabilityOf(g),
			source:     s.Source,
			rel:        cmp.Or(rel, "."),
			target:     path.Join(at, rel),
			write:      write,
			readOnly:   !write || s.ReadOnly,
		})
	}
}

// unique drops binds that a wider grant of the same share repeats, and refuses
// two different folders at one place.
func (l *layout) unique() error {
	seen := map[string]bind{}
	var kept []bind
	for _, b := range l.binds {
		o, twice := seen[b.target]
		if twice && (o.source != b.source || o.rel != b.rel) {
			return fmt.Errorf("%s and %s would both appear at %s", o.capability, b.capability, b.target)
		}
		if !twice {
			seen[b.target] = b
			kept = append(kept, b)
		}
	}
	l.binds = kept
	return nil
}

// innermost returns the share with the longest path at or above p.
func innermost(shares []Share, p string) (best Share, ok bool) {
	for _, s := range shares {
		if (p == s.Path || below(p, s.Path)) && len(s.Path) > len(best.Path) {
			best, ok = s, true
		}
	}
	return best, ok
}

func checkShares(shares []Share) error {
	places := map[string]bool{}
	for _, s := range shares {
		for _, at := range append([]string{s.Path}, s.Aliases...) {
			if places[at] {
				return fmt.Errorf("two shares at %s", at)
			}
			places[at] = true
		}
	}
	return nil
}

package compile

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// The oracle below says from the text of the capabilities alone what an app
// may do, in the plainest way and with nothing of the compiler's.

func declaredPath(capabilities []string, name string, write bool) bool {
	for _, c := range capabilities {
		for _, action := range []string{"filesystem:write:", "filesystem:read:"} {
			if write && action == "filesystem:read:" {
				continue
			}
			if folder, ok := strings.CutPrefix(c, action); ok && (name == folder || strings.HasPrefix(name, folder+"/")) {
				return true
			}
		}
	}
	return false
}

// grantedPath reads the policy as Landlock does: rights of all rules above a
// path add up.
func grantedPath(p policy.Policy, name string, write bool) bool {
	for _, g := range p.Paths {
		if (name == g.Path || strings.HasPrefix(name, g.Path+"/")) && (g.Access == policy.Write || !write) {
			return true
		}
	}
	return false
}

var (
	folders = rapid.SampledFrom([]string{"a", "b", "a-evil", "ab", "A", "a b"})
	places  = rapid.Custom(func(t *rapid.T) string {
		root := rapid.SampledFrom([]string{"/workspace", "/workspace", "/workspace", "/tmp", "/app"}).Draw(t, "root")
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			root += "/" + folders.Draw(t, "folder")
		}
		return root
	})
	ports      = rapid.SampledFrom([]string{"1", "80", "443", "8080", "65535"})
	capability = rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return "network:connect:" + ports.Draw(t, "port")
		case 1:
			return "network:bind:" + ports.Draw(t, "port")
		case 2:
			return "filesystem:write:" + places.Filter(func(p string) bool { return !strings.HasPrefix(p, "/app") }).Draw(t, "path")
		}
		return "filesystem:read:" + places.Draw(t, "path")
	})
	lists = rapid.SliceOfN(capability, 0, 12)
	// probed are paths near the granted ones: at, below, above and beside them.
	probed = rapid.Custom(func(t *rapid.T) string {
		return places.Draw(t, "place") + rapid.SampledFrom([]string{"", "/x", "-evil", "x", "/x/y"}).Draw(t, "end")
	})
)

func compiled(t *rapid.T, capabilities []string) policy.Policy {
	raw := "name: sample\nversion: 0.1.0\ncapabilities: ["
	for _, c := range capabilities {
		raw += "\"" + c + "\", "
	}
	m, err := manifest.Parse("berth.yml", []byte(raw+"]\n"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	p, _, err := Compile(m, code)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// TestGrantedIsDeclared is MF-15, first half: no path, no port and no access
// is granted that the text does not name, and none of those is forgotten.
func TestGrantedIsDeclared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := lists.Draw(t, "capabilities")
		p := compiled(t, list)
		for _, name := range append(rapid.SliceOfN(probed, 1, 20).Draw(t, "probes"), "/", "/etc", "/workspace-evil", "/context") {
			for _, write := range []bool{false, true} {
				declared := declaredPath(list, name, write) && !strings.HasPrefix(name, "/app")
				if granted := grantedPath(p, name, write); granted != declared {
					t.Errorf("%s (write %t): granted %t, declared %t", name, write, granted, declared)
				}
				if _, covered := policy.Covers(p, name, write); covered != declared {
					t.Errorf("%s (write %t): Covers says %t, declared %t", name, write, covered, declared)
				}
			}
		}
		for _, port := range []uint16{1, 80, 443, 8080, 65535, 2, 81} {
			for kind, granted := range map[string][]uint16{"network:connect:": p.Connect, "network:bind:": p.Bind} {
				if slices.Contains(granted, port) != slices.Contains(list, kind+itoa(port)) {
					t.Errorf("%s%d: granted %v, declared %q", kind, port, granted, list)
				}
			}
		}
		if p.Class != policy.ClassBase && !strings.Contains(strings.Join(list, " "), "network:") {
			t.Errorf("class %s without a network capability", p.Class)
		}
	})
}

func itoa(port uint16) string {
	s := ""
	for n := int(port); n > 0; n /= 10 {
		s = string(rune('0'+n%10)) + s
	}
	return s
}

// TestMoreIsNeverLess is MF-15, second half: a capability added never takes a
// grant away, one removed never adds one, and the order is all the same.
func TestMoreIsNeverLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fewer := lists.Draw(t, "capabilities")
		at := rapid.IntRange(0, len(fewer)).Draw(t, "at")
		more := slices.Insert(slices.Clone(fewer), at, capability.Draw(t, "added"))
		with, without := compiled(t, more), compiled(t, fewer)
		for _, name := range rapid.SliceOfN(probed, 1, 20).Draw(t, "probes") {
			for _, write := range []bool{false, true} {
				if grantedPath(without, name, write) && !grantedPath(with, name, write) {
					t.Errorf("%s (write %t): lost by adding %s", name, write, more[at])
				}
			}
		}
		for _, port := range append(slices.Clone(without.Connect), without.Bind...) {
			if !slices.Contains(append(slices.Clone(with.Connect), with.Bind...), port) {
				t.Errorf("port %d: lost by adding %s", port, more[at])
			}
		}
		shuffled := rapid.Permutation(more).Draw(t, "order")
		a, _ := with.Encode()
		b, _ := compiled(t, shuffled).Encode()
		if string(a) != string(b) {
			t.Errorf("the order changes the policy:\n%s\n%s", a, b)
		}
	})
}

// TestNoEntryIsSuperfluous: an enforcer mounts every entry, a read-only one
// inside a writable one would take access away.
func TestNoEntryIsSuperfluous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, lists.Draw(t, "capabilities"))
		for i, g := range p.Paths {
			rest := p
			rest.Paths = slices.Delete(slices.Clone(p.Paths), i, i+1)
			if grantedPath(rest, g.Path, g.Access == policy.Write) {
				t.Errorf("%+v is covered by the others of %+v", g, p.Paths)
			}
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	})
}

package grant

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthos/berth/init/policy"
)

var places = []string{"/workspace", "/workspace/a", "/workspace/a/b", "/workspace/c", "/workspace/a-evil", "/tmp", "/tmp/a"}

var rights = rapid.Custom(func(t *rapid.T) policy.Rights {
	r := policy.Rights{Connect: []uint16{443}[:rapid.IntRange(0, 1).Draw(t, "connect")], Terminal: rapid.Bool().Draw(t, "terminal")}
	for _, place := range places {
		switch rapid.IntRange(0, 3).Draw(t, place) {
		case 0:
			r.Paths = append(r.Paths, policy.Path{Path: place, Access: policy.Read})
		case 1:
			r.Paths = append(r.Paths, policy.Path{Path: place, Access: policy.Write})
		}
	}
	slices.SortFunc(r.Paths, func(a, b policy.Path) int { return strings.Compare(a.Path, b.Path) })
	r.HostExecuted = []string{".envrc"}[:rapid.IntRange(0, 1).Draw(t, "host-executed")]
	return r.WithClass()
})

var narrowings = rapid.Custom(func(t *rapid.T) Narrowing {
	n := Narrowing{ReadOnly: rapid.Bool().Draw(t, "read-only")}
	if rapid.Bool().Draw(t, "exports") {
		n.Exports = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "none"}), rapid.ID[string]).Draw(t, "which")
	}
	if rapid.Bool().Draw(t, "paths") {
		n.Paths = append([]string{}, rapid.SliceOf(rapid.SampledFrom(places)).Draw(t, "paths left")...)
	}
	return n
})

// TestApplyNeverAdds: what is left is of the manifest and of the grant, and
// nothing of both is lost.
func TestApplyNeverAdds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := sample()
		p.Rights = rights.Draw(t, "rights")
		p.Exports, p.Workers = []string{"a", "b"}, nil
		if worker := rights.Draw(t, "worker"); worker.Beyond(p.Rights) == "" {
			p.Workers = []policy.Worker{{Name: "c", Exports: []string{"c", "d"}, Rights: worker}}
		}
		n := narrowings.Draw(t, "narrowing")
		out, err := Apply(p, n)
		if err != nil {
			if n.Exports == nil {
				t.Fatal(err)
			}
			return
		}
		if err := out.Check(); err != nil {
			t.Fatal(err)
		}
		if more := out.Beyond(p.Rights); more != "" {
			t.Errorf("added %s", more)
		}
		if again, err := Apply(out, n); err != nil || !equalBytes(t, again, out) {
			t.Errorf("applied twice it differs: %v", err)
		}
		check(t, n, p.Rights, out.Rights)
		for _, export := range []string{"a", "b", "c", "d"} {
			before, had := p.Serves(export)
			after, has := out.Serves(export)
			if has != (had && (n.Exports == nil || slices.Contains(n.Exports, export))) {
				t.Errorf("export %s: had %v, has %v", export, had, has)
			}
			if has {
				check(t, n, of(t, p, before), of(t, out, after))
			}
		}
	})
}

// check compares rights place by place with what the narrowing says in words.
func check(t *rapid.T, n Narrowing, before, after policy.Rights) {
	for _, place := range append(places, "/workspace/a/b/c", "/workspace/d", "/") {
		for _, write := range []bool{false, true} {
			own := strings.HasPrefix(place, "/tmp") // the app's own, not the user's
			_, want := policy.Covers(policy.Policy{Rights: before}, place, write)
			want = want && (own || !write || !n.ReadOnly)
			if n.Paths != nil && !own {
				want = want && slices.ContainsFunc(n.Paths, func(left string) bool { return place == left || strings.HasPrefix(place, left+"/") })
			}
			if _, got := policy.Covers(policy.Policy{Rights: after}, place, write); got != want {
				t.Errorf("%s (write %t): %t, want %t\nbefore %+v\nafter %+v\n%+v", place, write, got, want, before, after, n)
			}
		}
	}
}

func of(t *rapid.T, p policy.Policy, process string) policy.Rights {
	one, err := p.For(process)
	if err != nil {
		t.Fatal(err)
	}
	return one.Rights
}

func equalBytes(t *rapid.T, a, b policy.Policy) bool {
	x, err := a.Encode()
	y, err2 := b.Encode()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return string(x) == string(y)
}

package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// further are the capabilities that need no path and no port.
var further = rapid.SampledFrom([]string{
	"terminal:attach:*", "app:invoke:notes", "app:invoke:notes.add", "app:invoke:notes.list", "app:invoke:search.find",
})

// appOf is a manifest in the plainest form: what the app declares, and what each
// export does; nil is an export that is not narrowed.
type appOf struct {
	capabilities, secrets []string
	exports               map[string][]string
	exportSecrets         map[string][]string
}

var apps = rapid.Custom(func(t *rapid.T) appOf {
	a := appOf{
		capabilities:  append(lists.Draw(t, "capabilities"), rapid.SliceOfN(further, 0, 3).Draw(t, "further")...),
		secrets:       rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A_TOKEN", "B_TOKEN", "C_TOKEN"}), 0, 3, rapid.ID[string]).Draw(t, "secrets"),
		exports:       map[string][]string{},
		exportSecrets: map[string][]string{},
	}
	for _, name := range []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(t, "exports")] {
		if a.exports[name] = nil; rapid.Bool().Draw(t, "whole") {
			continue
		}
		a.exports[name] = []string{}
		for _, c := range a.capabilities {
			switch rapid.IntRange(0, 3).Draw(t, "take "+c) {
			case 0:
				a.exports[name] = append(a.exports[name], c)
			case 1: // less of it
				a.exports[name] = append(a.exports[name], lessOf(c))
			}
		}
		for _, s := range a.secrets {
			if rapid.Bool().Draw(t, "secret "+s) {
				a.exportSecrets[name] = append(a.exportSecrets[name], s)
			}
		}
	}
	return a
})

// lessOf is a capability that c covers.
func lessOf(c string) string {
	switch {
	case strings.HasPrefix(c, "filesystem:write:"):
		return strings.Replace(c, "write", "read", 1) + "/a"
	case strings.HasPrefix(c, "filesystem:"):
		return c + "/b"
	case c == "app:invoke:notes":
		return c + ".add"
	}
	return c
}

func (a appOf) text() string {
	list := func(items []string) string {
		var b strings.Builder
		for _, i := range items {
			fmt.Fprintf(&b, "%q, ", i)
		}
		return "[" + b.String() + "]"
	}
	text := "name: sample\nversion: 0.1.0\ncapabilities: " + list(a.capabilities) + "\nsecrets: " + list(a.secrets) + "\nexports:\n"
	if len(a.exports) == 0 {
		return strings.Replace(text, "exports:\n", "exports: []\n", 1)
	}
	for _, name := range []string{"d", "c", "b", "a"} {
		capabilities, there := a.exports[name]
		if !there {
			continue
		}
		text += "  - name: " + name + "\n"
		if capabilities != nil {
			text += "    capabilities: " + list(capabilities) + "\n    secrets: " + list(a.exportSecrets[name]) + "\n"
		}
	}
	return text
}

// TestWorkersGrantDeclared: the process that serves an export may do what the
// export declares, and nothing of what only the app does.
func TestWorkersGrantDeclared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := apps.Draw(t, "app")
		m, err := manifest.Parse("berth.yml", []byte(a.text()))
		if err != nil {
			t.Fatalf("%v\n%s", err, a.text())
		}
		p, _, err := Compile(m, code)
		if err != nil {
			t.Fatalf("%v\n%s", err, a.text())
		}
		probes := append(rapid.SliceOfN(probed, 1, 10).Draw(t, "probes"), "/", "/etc", "/context")
		all := p
		all.Workers = nil
		a.check(t, "the app", all, a.capabilities, a.secrets, probes)
		for name, list := range a.exports {
			secrets := a.exportSecrets[name]
			if list == nil {
				list, secrets = a.capabilities, a.secrets
			}
			worker, ok := p.Serves(name)
			if !ok || (worker == policy.Main) != (a.exports[name] == nil) {
				t.Fatalf("export %s is served by %q, %v", name, worker, ok)
			}
			one, err := p.For(worker)
			if err != nil {
				t.Fatal(err)
			}
			a.check(t, name, one, list, secrets, probes)
		}
		if raw, err := p.Encode(); err != nil {
			t.Error(err)
		} else if _, err := policy.Parse(raw); err != nil {
			t.Error(err)
		}
	})
}

// check compares a policy with the text of capabilities.
func (a appOf) check(t *rapid.T, who string, p policy.Policy, list, secrets, probes []string) {
	for _, name := range probes {
		for _, write := range []bool{false, true} {
			declared := declaredPath(list, name, write) && !strings.HasPrefix(name, "/app")
			if granted := grantedPath(p, name, write); granted != declared {
				t.Errorf("%s: %s (write %t): granted %t, declared %t\n%s", who, name, write, granted, declared, a.text())
			}
		}
	}
	for _, port := range []uint16{1, 80, 443, 8080, 65535, 2} {
		for kind, granted := range map[string][]uint16{"network:connect:": p.Connect, "network:bind:": p.Bind} {
			if slices.Contains(granted, port) != slices.Contains(list, kind+itoa(port)) {
				t.Errorf("%s: %s%d: granted %v, declared %q", who, kind, port, granted, list)
			}
		}
	}
	if p.Terminal != slices.Contains(list, "terminal:attach:*") {
		t.Errorf("%s: terminal %v, declared %q", who, p.Terminal, list)
	}
	for _, call := range []string{"notes.add", "notes.list", "notes.other", "search.find", "search.other", "other.add"} {
		app, export, _ := strings.Cut(call, ".")
		declared := slices.Contains(list, "app:invoke:"+app) || slices.Contains(list, "app:invoke:"+call)
		if p.Invokes(app, export) != declared {
			t.Errorf("%s: calling %s: granted %t, declared %q", who, call, !declared, list)
		}
	}
	for _, s := range []string{"A_TOKEN", "B_TOKEN", "C_TOKEN"} {
		if slices.Contains(p.Secrets, s) != slices.Contains(secrets, s) {
			t.Errorf("%s: secret %s: given %q, declared %q", who, s, p.Secrets, secrets)
		}
	}
	if len(p.HostExecuted) > 0 {
		t.Errorf("%s: %q", who, p.HostExecuted)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/manifest"
)

// TestManifest holds berth.yml and the code together.
func TestManifest(t *testing.T) {
	raw, err := os.ReadFile("berth.yml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse("berth.yml", raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := compile.Compile(m, "sha256:"+strings.Repeat("0", 64)); err != nil {
		t.Error(err)
	}
	declared := map[string]manifest.Export{}
	for _, e := range m.Exports {
		declared[e.Name] = e
	}
	for _, e := range newApp(files{}).Exports() {
		d, ok := declared[e.Name]
		if !ok {
			t.Errorf("export %s is not in berth.yml", e.Name)
			continue
		}
		delete(declared, e.Name)
		if d.Description != e.Description {
			t.Errorf("export %s: berth.yml says %q, the code %q", e.Name, d.Description, e.Description)
		}
		if got, want := declaredFields(d.Input), codeFields(t, e.Input); !maps.Equal(got, want) {
			t.Errorf("export %s: berth.yml has the input %v, the code %v", e.Name, got, want)
		}
	}
	for name := range declared {
		t.Errorf("export %s is in berth.yml and not in the code", name)
	}
}

// declaredFields are names with their types, and a ? where optional.
func declaredFields(fields []manifest.Field) map[string]string {
	all := map[string]string{}
	for _, f := range fields {
		all[f.Name] = string(f.Type)
		if f.Optional {
			all[f.Name] += "?"
		}
	}
	return all
}

func codeFields(t *testing.T, raw json.RawMessage) map[string]string {
	var s struct {
		Properties map[string]struct{ Type any }
		Required   []string
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, p := range s.Properties {
		switch kind := p.Type.(type) {
		case string:
			all[name] = kind
		case []any: // null or the type
			all[name] = kind[1].(string)
		}
		if !slices.Contains(s.Required, name) {
			all[name] += "?"
		}
	}
	return all
}

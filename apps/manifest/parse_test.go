package manifest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs, rewrite it with -update and read the diff; got:\n%s", file, got)
	}
}

// describeFaults is what the golden files of refused manifests hold.
func describeFaults(list Errors) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(e.Error() + "\n")
		if e.Hint != "" {
			b.WriteString("  hint: " + e.Hint + "\n")
		}
	}
	return b.String()
}

func TestRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yml")
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse("berth.yml", raw)
			var faults Errors
			if !errors.As(err, &faults) {
				t.Fatalf("accepted, or another error: %v", err)
			}
			checkFaults(t, raw, faults)
			golden(t, strings.TrimSuffix(file, ".yml")+".golden.txt", describeFaults(faults))
		})
	}
}

// checkFaults holds for every refusal of any bytes.
func checkFaults(t *testing.T, raw []byte, faults Errors) {
	t.Helper()
	if len(faults) == 0 {
		t.Error("an error without a fault")
	}
	lines := strings.Count(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n") + 1
	for _, e := range faults {
		for _, text := range []string{e.Msg, e.Hint, e.Error()} {
			if strings.ContainsFunc(text, func(r rune) bool { return !printable(r) }) || len(text) > 2000 {
				t.Errorf("not one printable line of moderate length: %q", text)
			}
		}
		if e.Msg == "" || e.Line < 0 || e.Line > lines || e.Line > 0 && e.Col < 1 {
			t.Errorf("%d lines, fault at %d:%d: %q", lines, e.Line, e.Col, e.Msg)
		}
	}
	if !slices.IsSortedFunc(faults, func(a, b Error) int { return a.Line - b.Line }) {
		t.Error("faults are not in the order of the file")
	}
}

const full = `name: full
version: 1.0.0-rc.1
description: |
  Two lines,
  kept.
run: [/app/full, --x]
build:
  - go
  - build
capabilities:
  # a comment
  - filesystem:read:/workspace
  - "filesystem:write:/workspace/My Documents"   # another
  - 'filesystem:read:/workspace/Übersicht'
  - network:connect:443
exports:
  - name: one
    input: { y: number, path: string, size: { type: integer, optional: true, description: "bytes" } }
    output:
      ok: boolean
    capabilities: [ filesystem:read:/workspace/docs ]
  - { name: two, description: 'second' }
secrets: [API_TOKEN, { name: OTHER, for: "*.example.com", header: X-Key }]
resources:
  cpu: 0.25
  memory_mb: 64
`

func TestParse(t *testing.T) {
	for _, newline := range []string{"\n", "\r\n"} {
		m, err := Parse("berth.yml", []byte(strings.ReplaceAll(full, "\n", newline)))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ what, got, want string }{
			{"name", m.Name, "full"},
			{"version", m.Version, "1.0.0-rc.1"},
			{"description", m.Description, "Two lines,\nkept."},
			{"runtime", string(m.Runtime), "none"},
			{"run", strings.Join(m.Run, " "), "/app/full --x"},
			{"build", strings.Join(m.Build, " "), "go build"},
			{"second capability", m.Capabilities[1].String(), "filesystem:write:/workspace/My Documents"},
			{"third capability", m.Capabilities[2].Scope, "/workspace/Übersicht"},
			{"field", string(m.Exports[0].Input[2].Type), "integer"},
			{"field's description", m.Exports[0].Input[2].Description, "bytes"},
			{"second export", m.Exports[1].Description, "second"},
			{"narrowed", m.Exports[0].Capabilities[0].String(), "filesystem:read:/workspace/docs"},
			{"secret", m.Secrets[0].Name, "API_TOKEN"},
			{"secret's host", m.Secrets[1].For + " " + m.Secrets[1].Header, "*.example.com X-Key"},
		} {
			if c.got != c.want {
				t.Errorf("%s = %q, want %q", c.what, c.got, c.want)
			}
		}
		if m.Resources != (Resources{CPUMilli: 250, MemoryMB: 64, Pids: 128}) {
			t.Errorf("resources = %+v", m.Resources)
		}
		if p := m.Capabilities[3].Port(); p != 443 {
			t.Errorf("port = %d", p)
		}
		if m.Exports[1].Narrowed || !m.Exports[0].Narrowed {
			t.Error("narrowing is not told from its absence")
		}
	}
}

// TestPositions: a place that is off by one sends its reader to another line.
func TestPositions(t *testing.T) {
	m, err := Parse("berth.yml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(full, "\n")
	at := func(p Pos, want string) {
		t.Helper()
		if p.Line < 1 || p.Line > len(lines) || !strings.HasPrefix(string([]rune(lines[p.Line-1])[p.Col-1:]), want) {
			t.Errorf("%+v is not at %q", p, want)
		}
	}
	at(m.Capabilities[0].Pos, "filesystem:read:/workspace")
	at(m.Capabilities[1].Pos, `"filesystem:write`)
	at(m.Capabilities[2].Pos, "'filesystem:read")
	at(m.Capabilities[3].Pos, "network")
	at(m.Exports[0].Pos, "name: one")
	at(m.Exports[0].Input[0].Pos, "y: number")
	at(m.Exports[0].Input[2].Pos, "size:")
	at(m.Exports[0].Output[0].Pos, "ok: boolean")
	at(m.Exports[0].Capabilities[0].Pos, "filesystem:read:/workspace/docs")
	at(m.Exports[1].Pos, "{ name: two")
	at(m.Secrets[0].Pos, "API_TOKEN")
	at(m.Secrets[1].Pos, "{ name: OTHER")
	at(m.At("run"), "run:")
	at(m.At("resources.memory_mb"), "memory_mb:")
	if m.At("governs") != (Pos{}) {
		t.Error("a key that is left out has a place")
	}
}

func TestDefaults(t *testing.T) {
	m, err := Parse("berth.yml", []byte("name: a\nversion: 0.1.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Runtime != RuntimeNone || m.SchemaVersion != 1 || m.Resources != DefaultResources() || len(m.Run) != 0 || m.Governs || m.Expose != (Expose{}) {
		t.Errorf("defaults are %+v", m)
	}
}

func TestManyFaultsAreCutShort(t *testing.T) {
	raw := "name: a\nversion: 0.1.0\ncapabilities:\n" + strings.Repeat("  - nonsense\n", 200)
	_, err := Parse("berth.yml", []byte(raw))
	var faults Errors
	if !errors.As(err, &faults) || len(faults) != maxErrors+1 {
		t.Fatalf("%d faults, want %d and a last line", len(faults), maxErrors)
	}
	if last := faults[maxErrors].Msg; !strings.Contains(last, "150 more") {
		t.Errorf("last line is %q", last)
	}
}

func TestErrorsAreOneLineEach(t *testing.T) {
	one := Errors{{File: "a\nb.yml", Pos: Pos{3, 4}, Msg: "m", Hint: "h"}}
	if one.Error() != `"a\nb.yml":3:4: m` || one.Hint() != "h" {
		t.Errorf("%q, %q", one.Error(), one.Hint())
	}
	two := append(one, Error{Msg: "n"})
	if got := two.Error(); got != "\"a\\nb.yml\":3:4: m\n  hint: h\nn" || two.Hint() != "" {
		t.Errorf("%q, %q", got, two.Hint())
	}
}

package compile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

var update = flag.Bool("update", false, "rewrite golden files")

var code = "sha256:" + strings.Repeat("0123456789abcdef", 4)

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
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

// TestGolden compiles the manifests of testdata and those of Berth's own apps.
// The .json is what is hashed and enforced, byte for byte; the .txt is for the
// reader of a diff.
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.yml")
	own, _ := filepath.Glob("../*/berth.yml")
	for _, file := range append(files, own...) {
		name := strings.TrimSuffix(filepath.Base(file), ".yml")
		if name == "berth" {
			name = "app-" + filepath.Base(filepath.Dir(file))
		}
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, err := manifest.Parse("berth.yml", source)
			if err != nil {
				t.Fatal(err)
			}
			p, notes, err := Compile(m, code)
			if err != nil {
				golden(t, name+".golden.txt", refusal(t, err))
				return
			}
			raw, err := p.Encode()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".golden.json", string(raw))
			golden(t, name+".golden.txt", p.String()+noteLines(notes))
			if _, err := policy.Parse(raw); err != nil {
				t.Errorf("the enforcer would refuse it: %v", err)
			}
		})
	}
}

func refusal(t *testing.T, err error) string {
	t.Helper()
	var faults manifest.Errors
	if !errors.As(err, &faults) {
		t.Fatalf("another error: %v", err)
	}
	return faults.Error() + "\n"
}

func noteLines(notes []Note) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "\nnote %d:%d: %s", n.Line, n.Col, n.Text)
	}
	return b.String() + "\n"
}

func parse(t *testing.T, capabilities ...string) manifest.Manifest {
	t.Helper()
	raw := "name: sample\nversion: 0.1.0\ncapabilities:\n"
	for _, c := range capabilities {
		raw += fmt.Sprintf("  - %q\n", c)
	}
	if len(capabilities) == 0 {
		raw = strings.Replace(raw, "capabilities:", "capabilities: []", 1)
	}
	m, err := manifest.Parse("berth.yml", []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestNothingDeclaredIsNothingGranted is MF-04.
func TestNothingDeclaredIsNothingGranted(t *testing.T) {
	p, notes, err := Compile(parse(t), code)
	if err != nil || len(notes) != 0 {
		t.Fatal(notes, err)
	}
	if len(p.Paths)+len(p.Connect)+len(p.Bind)+len(p.Invoke)+len(p.Secrets)+len(p.HostExecuted) != 0 || p.Terminal || p.Class != policy.ClassBase {
		t.Errorf("granted %+v", p)
	}
}

// TestOneRefusalEach: every capability that nothing enforces stops the start
// by itself, so none hides behind another.
func TestOneRefusalEach(t *testing.T) {
	for _, c := range []string{
		"filesystem:read:/context", "filesystem:write:/context/a", "filesystem:write:/app", "filesystem:write:/app/cache",
		"network:host:example.com", "network:peer:other", "browser:navigate:*", "browser:screenshot:*",
		"github:read:repos", "github:write:issues@octocat/hello-world", "context:publish:notes.added", "context:subscribe:notes.*",
	} {
		_, _, err := Compile(parse(t, "filesystem:read:/workspace", c), code)
		var faults manifest.Errors
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line != 5 || !strings.Contains(faults[0].Msg, c) || faults[0].Hint == "" {
			t.Errorf("%s: %v", c, err)
		}
	}
}

func TestBadCodeDigest(t *testing.T) {
	for _, bad := range []string{"", "sha256:", code + "0", strings.ToUpper(code), "sha512:" + strings.Repeat("0", 64)} {
		if _, _, err := Compile(parse(t), bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

// TestHandMadeManifest: a value that no parser made is held to the grammar.
func TestHandMadeManifest(t *testing.T) {
	for _, spoil := range []func(*manifest.Manifest){
		func(m *manifest.Manifest) {
			m.Capabilities = []manifest.Capability{{Kind: manifest.FilesystemWrite, Scope: "/"}}
		},
		func(m *manifest.Manifest) {
			m.Capabilities = []manifest.Capability{{Kind: manifest.FilesystemRead, Scope: "/workspace/../etc"}}
		},
		func(m *manifest.Manifest) {
			m.Capabilities = []manifest.Capability{{Kind: manifest.NetworkBind, Scope: "0"}}
		},
		func(m *manifest.Manifest) { m.Capabilities = []manifest.Capability{{Kind: "all:of", Scope: "it"}} },
		func(m *manifest.Manifest) { m.Resources = manifest.Resources{} },
		func(m *manifest.Manifest) { m.Run = []string{"/bin/sh"} },
		func(m *manifest.Manifest) { m.Name = "../x" },
		func(m *manifest.Manifest) { *m = manifest.Manifest{} },
	} {
		m := parse(t)
		spoil(&m)
		if p, _, err := Compile(m, code); err == nil {
			t.Errorf("compiled %+v", p)
		}
	}
}

package manifest

import (
	"errors"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParse: any bytes give a manifest that keeps to its grammar, or faults
// that are safe to print.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/refused/*.yml", "../compile/testdata/*.yml", "../*/berth.yml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	f.Add([]byte(full))
	for _, text := range hostile() {
		if len(text) <= 4096 { // larger ones are slow to mutate; TestHostileInputIsCheap has them
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Parse("berth.yml", raw)
		if err != nil {
			var faults Errors
			if !errors.As(err, &faults) {
				t.Fatalf("another error: %v", err)
			}
			checkFaults(t, raw, faults)
			if strings.Contains(faults[0].Msg, "the YAML library failed") {
				t.Error("the YAML library panicked")
			}
			return
		}
		checkManifest(t, m)
		if again, err := Parse("berth.yml", raw); err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("a second reading differs: %v", err)
		}
	})
}

// checkManifest says again, in other words, what an accepted manifest is.
func checkManifest(t *testing.T, m Manifest) {
	t.Helper()
	if m.Name == "" || len(m.Name) > 63 || strings.Trim(m.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		t.Errorf("name %q", m.Name)
	}
	if strings.Count(m.Version, ".") < 2 || strings.ContainsAny(m.Version, " /\n") {
		t.Errorf("version %q", m.Version)
	}
	r := m.Resources
	if r.CPUMilli < 10 || r.MemoryMB < 16 || r.Pids < 16 || r.GPU < 0 {
		t.Errorf("resources %+v", r)
	}
	for _, c := range m.Capabilities {
		checkCapability(t, c)
		if c.Line < 1 || c.Col < 1 {
			t.Errorf("capability %s is nowhere", c)
		}
	}
	for _, s := range m.Secrets {
		if Reserved(s.Name) || strings.ContainsAny(s.Name, "= \n") || s.Name == "" {
			t.Errorf("secret %q", s.Name)
		}
	}
	for _, e := range m.Exports {
		if e.Name == "" || strings.ContainsAny(e.Name, " ./\n") {
			t.Errorf("export %q", e.Name)
		}
		for _, c := range e.Capabilities {
			checkCapability(t, c)
		}
	}
	if len(m.Run) > 0 && m.Runtime == RuntimeNone && !strings.HasPrefix(path.Clean(m.Run[0]), "/app/") {
		t.Errorf("run %q", m.Run)
	}
}

func checkCapability(t *testing.T, c Capability) {
	t.Helper()
	if again, err := ParseCapability(c.String()); err != nil || again.Kind != c.Kind || again.Scope != c.Scope {
		t.Errorf("%q reads as %q, %v", c, again, err)
	}
	if !c.Covers(c) {
		t.Errorf("%q does not cover itself", c)
	}
	switch c.Kind {
	case FilesystemRead, FilesystemWrite:
		checkFolder(t, c.Scope)
	case NetworkConnect, NetworkBind:
		if port := c.Port(); port == 0 || strconv.Itoa(int(port)) != c.Scope {
			t.Errorf("port %q is %d", c.Scope, port)
		}
	case NetworkHost, BrowserNavigate:
		host, _, _ := strings.Cut(c.Scope, ":")
		if _, err := netip.ParseAddr(host); err == nil || host != strings.ToLower(host) || strings.Count(host, "*") > 1 {
			t.Errorf("host %q", c.Scope)
		}
	}
}

func checkFolder(t *testing.T, scope string) {
	t.Helper()
	allowed := false
	for _, root := range []string{"/workspace", "/context", "/tmp", "/app"} {
		allowed = allowed || scope == root || strings.HasPrefix(scope, root+"/")
	}
	if !allowed || path.Clean(scope) != scope || !utf8.ValidString(scope) || strings.ContainsAny(scope, "\x00\n\r\t*?[]{}$%\\\u2215\u202e\u200b") {
		t.Errorf("scope %q", scope)
	}
}

// FuzzScope: a capability has one spelling, and nothing else is accepted.
func FuzzScope(f *testing.F) {
	for _, name := range []string{"scopes", "ports", "hosts", "other-scopes"} {
		raw, err := os.ReadFile("testdata/refused/" + name + ".yml")
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			text := strings.TrimPrefix(strings.TrimSpace(line), "- ")
			if unquoted, err := strconv.Unquote(text); err == nil {
				text = unquoted
			}
			f.Add(text)
		}
	}
	for _, c := range accepted {
		f.Add(c)
	}
	f.Add("filesystem:read:/workspace/" + strings.Repeat("a", 5000))
	f.Add("filesystem:read:/workspace" + strings.Repeat("/a", 300))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCapability(text)
		if err != nil {
			var fault Error
			if !errors.As(err, &fault) || fault.Msg == "" {
				t.Fatalf("another error: %v", err)
			}
			checkFaults(t, nil, Errors{fault})
			return
		}
		if c.String() != text {
			t.Errorf("%q was read as %q", text, c)
		}
		checkCapability(t, c)
	})
}

package policy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

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

func sample() Policy {
	return Policy{
		Schema: Schema, App: "sample", Version: "1.2.3", Code: "sha256:" + strings.Repeat("ab", 32),
		Argv: []string{"/app/sample", "--name", "two words"},
		Rights: Rights{
			Class:   ClassNetwork,
			Paths:   []Path{{"/tmp", Write}, {"/workspace", Read}, {"/workspace/out", Write}},
			Connect: []uint16{5432, 8090}, Bind: []uint16{8090},
		},
		Limits:  Limits{CPUMilli: 500, MemoryMB: 256, Pids: 64},
		Exports: []string{"read", "write"},
	}
}

func bare() Policy {
	p := sample()
	p.Class, p.Paths, p.Connect, p.Bind, p.Exports = ClassBase, []Path{}, []uint16{}, []uint16{}, []string{}
	return p
}

// TestFitGolden prints the whole history: what each ABI handles, what a policy
// becomes on it and what is lost, with Landlock alone and with every layer.
func TestFitGolden(t *testing.T) {
	var b strings.Builder
	all := Layers{Mounts: true, PID: true, Net: true, NoUnix: true}
	for abi := range NewestABI + 2 {
		h := History(abi)
		fmt.Fprintf(&b, "ABI %d\n  fs     %s\n  net    %s\n  scope  %s\n  log %t, tsync %t\n", abi, h.FS, h.Net, h.Scope, h.Log, h.TSync)
		r, lost := Fit(sample(), abi, all)
		for _, rule := range r.Paths {
			fmt.Fprintf(&b, "  %s: %s\n", rule.Path, rule.Rights)
		}
		for _, rule := range r.Ports {
			fmt.Fprintf(&b, "  port %d: %s\n", rule.Port, rule.Rights)
		}
		for _, s := range r.Instead {
			fmt.Fprintf(&b, "  instead: %s\n", s)
		}
		for _, s := range lost {
			fmt.Fprintf(&b, "  lost: %s\n", s)
		}
		_, alone := Fit(sample(), abi, Layers{})
		fmt.Fprintf(&b, "  lost with Landlock alone: %d\n", len(alone))
	}
	golden(t, "fit.golden.txt", b.String())
}

func TestFitGrantsNoMoreThanHandled(t *testing.T) {
	for abi := range NewestABI + 1 {
		r, _ := Fit(sample(), abi, Layers{})
		for _, rule := range r.Paths {
			if rule.Rights&^r.FS != 0 {
				t.Errorf("ABI %d: %s has rights %s that are not handled", abi, rule.Path, rule.Rights&^r.FS)
			}
			if rule.Rights&(FSExecute|FSMakeChar|FSMakeBlock|FSIoctlDev|FSResolveUnix) != 0 {
				t.Errorf("ABI %d: %s has rights %s that no scope carries", abi, rule.Path, rule.Rights)
			}
		}
		for _, rule := range r.Ports {
			if rule.Rights == 0 || rule.Rights&^r.Net != 0 {
				t.Errorf("ABI %d: port %d has rights %s", abi, rule.Port, rule.Rights)
			}
		}
	}
}

// TestEachLayerClosesItsGap takes one layer away at a time: exactly what that
// layer stood for must be lost.
func TestEachLayerClosesItsGap(t *testing.T) {
	cases := []struct {
		name string
		abi  int
		have Layers
		lost []string // a part of each
	}{
		{"all layers, ABI 4", 4, Layers{true, true, true, true}, nil},
		{"no mounts, ABI 4", 4, Layers{false, true, true, true}, []string{"ioctl"}},
		{"no mounts, ABI 5", 5, Layers{false, true, true, true}, nil},
		{"no pid namespace, ABI 5", 5, Layers{true, false, true, true}, []string{"signals"}},
		{"no net namespace, ABI 5", 5, Layers{true, true, false, true}, []string{"abstract", "UDP"}},
		{"no net namespace, ABI 9", 9, Layers{true, true, false, true}, []string{"UDP"}},
		{"unix sockets, ABI 8", 8, Layers{true, true, true, false}, []string{"unix sockets"}},
		{"unix sockets, ABI 9", 9, Layers{true, true, true, false}, nil},
		{"nothing but Landlock, ABI 10", 10, Layers{}, nil},
		{"all layers, ABI 3", 3, Layers{true, true, true, true}, []string{"TCP"}},
		{"no Landlock", 0, Layers{true, true, true, true}, []string{"file access", "rename", "truncation", "TCP"}},
		{"no Landlock, negative", -1, Layers{true, true, true, true}, []string{"file access", "rename", "truncation", "TCP"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, lost := Fit(sample(), c.abi, c.have)
			if len(lost) != len(c.lost) {
				t.Fatalf("lost %q, want %q", lost, c.lost)
			}
			for i, part := range c.lost {
				if !strings.Contains(lost[i], part) {
					t.Errorf("lost %q, want %q in it", lost[i], part)
				}
			}
		})
	}
}

func TestUnixSocketsMatterOnlyInShares(t *testing.T) {
	p := bare()
	p.Paths = []Path{{"/tmp", Write}}
	if _, lost := Fit(p, 8, Layers{Mounts: true, PID: true, Net: true}); len(lost) != 0 {
		t.Errorf("lost %q with nothing shared", lost)
	}
	p.Paths = []Path{{"/workspace/docs", Read}}
	if _, lost := Fit(p, 8, Layers{Mounts: true, PID: true, Net: true}); len(lost) != 1 {
		t.Errorf("lost %q with a share, want the unix sockets", lost)
	}
}

func TestCovers(t *testing.T) {
	p := sample()
	cases := []struct {
		name  string
		write bool
		by    string
		ok    bool
	}{
		{"/workspace", false, "/workspace", true},
		{"/workspace/a/b", false, "/workspace", true},
		{"/workspace/a/b", true, "/workspace", false},
		{"/workspace/out", true, "/workspace/out", true},
		{"/workspace/out/a", false, "/workspace/out", true},
		{"/workspace/output", true, "/workspace", false},
		{"/workspace-evil", false, "", false},
		{"/workspace/../etc/passwd", false, "", false},
		{"/workspace/out/../x", true, "/workspace", false},
		{"/tmp/x", true, "/tmp", true},
		{"/", false, "", false},
		{"workspace", false, "", false},
		{"", false, "", false},
	}
	for _, c := range cases {
		by, ok := Covers(p, c.name, c.write)
		if ok != c.ok || by.Path != c.by {
			t.Errorf("Covers(%q, %t) = %q, %t, want %q, %t", c.name, c.write, by.Path, ok, c.by, c.ok)
		}
	}
}

// TestCoversFindsTheWriteAboveARead: rights add up, so a read scope below a
// write scope takes nothing away.
func TestCoversFindsTheWriteAboveARead(t *testing.T) {
	p := Policy{Rights: Rights{Paths: []Path{{"/workspace", Write}, {"/workspace/docs", Read}}}}
	if by, ok := Covers(p, "/workspace/docs/a", true); !ok || by.Path != "/workspace" {
		t.Errorf("got %v %t", by, ok)
	}
}

func TestShowGolden(t *testing.T) {
	golden(t, "show.golden.txt", sample().String()+"\n----\n\n"+bare().String()+"\n----\n\n"+full().String())
}

func TestShowIsSafeToPrint(t *testing.T) {
	p := sample()
	p.Argv = []string{"/app/sample", "\x1b[31m", ""}
	p.Paths = []Path{{"/workspace/a\u202eb", Read}}
	for _, r := range p.String() {
		if r != '\n' && (r < 0x20 || r == 0x202e) {
			t.Errorf("prints U+%04X", r)
		}
	}
}

func TestParseRoundTrip(t *testing.T) {
	for _, p := range []Policy{sample(), bare(), full()} {
		raw, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if more, err := again.Encode(); err != nil || string(more) != string(raw) || again.Check() != nil {
			t.Errorf("%v: %s became %s", err, raw, more)
		}
		for _, bad := range []string{string(raw) + "\n", " " + string(raw), strings.Replace(string(raw), `"app"`, `"App"`, 1), string(raw) + string(raw), ""} {
			if _, err := Parse([]byte(bad)); err == nil {
				t.Errorf("accepted %q", bad)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	if err := sample().Check(); err != nil {
		t.Fatal(err)
	}
	if err := bare().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Policy){
		"schema":             func(p *Policy) { p.Schema = 2 },
		"name":               func(p *Policy) { p.App = "../x" },
		"no name":            func(p *Policy) { p.App = "" },
		"cpu":                func(p *Policy) { p.Limits.CPUMilli = 0 },
		"memory":             func(p *Policy) { p.Limits.MemoryMB = -1 },
		"pids":               func(p *Policy) { p.Limits.Pids = 0 },
		"class":              func(p *Policy) { p.Class = "" },
		"no argv":            func(p *Policy) { p.Argv = nil },
		"argv outside":       func(p *Policy) { p.Argv[0] = "/app/../bin/sh" },
		"argv twin":          func(p *Policy) { p.Argv[0] = "/app-evil/x" },
		"argv is the folder": func(p *Policy) { p.Argv[0] = "/app" },
		"port 0":             func(p *Policy) { p.Bind = []uint16{0} },
		"ports unsorted":     func(p *Policy) { p.Connect = []uint16{2, 1} },
		"access":             func(p *Policy) { p.Paths[0].Access = "execute" },
		"root":               func(p *Policy) { p.Paths = []Path{{"/", Read}} },
		"relative":           func(p *Policy) { p.Paths[0].Path = "tmp" },
		"dots":               func(p *Policy) { p.Paths[0].Path = "/tmp/../etc" },
		"paths unsorted":     func(p *Policy) { p.Paths[0], p.Paths[1] = p.Paths[1], p.Paths[0] },
		"path twice":         func(p *Policy) { p.Paths[1] = p.Paths[0] },
	} {
		p := sample()
		spoil(&p)
		if p.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

package manifest

import (
	"strings"
	"testing"
)

// accepted has one of each form. Everything else that looks like them is in
// testdata/refused.
var accepted = []string{
	"filesystem:read:/workspace",
	"filesystem:write:/workspace/a/b.c",
	"filesystem:read:/workspace/My Documents",
	"filesystem:read:/workspace/\u00dcbersicht",
	"filesystem:read:/workspace/\u65e5\u672c\u8a9e",
	"filesystem:read:/workspace/.git",
	"filesystem:read:/workspace/a~b:c+d@e=f,g#h^i!(j)",
	"filesystem:read:/context",
	"filesystem:write:/tmp",
	"filesystem:read:/app/data",
	"network:connect:1",
	"network:bind:65535",
	"network:host:example.com",
	"network:host:*.example.com",
	"network:host:*",
	"network:host:xn--bcher-kva.example:8443",
	"network:host:1.example.com",
	"browser:navigate:*",
	"browser:navigate:*.example.com:8080",
	"browser:screenshot:*",
	"github:read:repos",
	"github:read:user:emails",
	"github:read:contents@octocat/hello.world",
	"github:write:issues@octocat/hello-world",
	"terminal:attach:*",
	"app:invoke:notes",
	"app:invoke:notes.add_note",
	"context:publish:notes.added",
	"context:subscribe:notes.*",
	"network:peer:planner",
}

func TestAcceptedCapabilities(t *testing.T) {
	seen := map[Kind]bool{}
	for _, text := range accepted {
		c, err := ParseCapability(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		checkCapability(t, c)
		seen[c.Kind] = true
	}
	for _, of := range kinds() {
		if !seen[of.kind] {
			t.Errorf("no capability of kind %s is accepted here", of.kind)
		}
	}
}

func TestLongScopes(t *testing.T) {
	for text, ok := range map[string]bool{
		"filesystem:read:/workspace/" + strings.Repeat("a", 255):    true,
		"filesystem:read:/workspace/" + strings.Repeat("a", 256):    false,
		"filesystem:read:/workspace" + strings.Repeat("/aaaa", 150): true,
		"filesystem:read:/workspace" + strings.Repeat("/aaaa", 250): false,
		"network:host:" + strings.Repeat("a", 63) + ".example.com":  true,
		"network:host:" + strings.Repeat("a", 64) + ".example.com":  false,
		"network:host:" + strings.Repeat("a.", 120) + "example.com": true,
		"network:host:" + strings.Repeat("a.", 130) + "example.com": false,
	} {
		if _, err := ParseCapability(text); (err == nil) != ok {
			t.Errorf("%.60s… (%d bytes): %v", text, len(text), err)
		}
	}
}

func TestCovers(t *testing.T) {
	cases := []struct {
		wide, narrow string
		covers       bool
	}{
		{"filesystem:write:/workspace", "filesystem:read:/workspace", true},
		{"filesystem:write:/workspace", "filesystem:write:/workspace/a", true},
		{"filesystem:read:/workspace", "filesystem:write:/workspace", false},
		{"filesystem:read:/workspace/a", "filesystem:read:/workspace/a-evil", false},
		{"filesystem:read:/workspace/a", "filesystem:read:/workspace", false},
		{"network:connect:80", "network:connect:8080", false},
		{"network:connect:80", "network:bind:80", false},
		{"network:host:*", "network:host:example.com", true},
		{"network:host:*", "network:host:example.com:80", true},
		{"network:host:*", "network:host:example.com:8080", false},
		{"network:host:*:8080", "network:host:example.com:8080", true},
		{"network:host:*.example.com", "network:host:a.example.com", true},
		{"network:host:*.example.com", "network:host:example.com", false},
		{"network:host:*.example.com", "network:host:a.b.example.com", false},
		{"network:host:*.example.com", "network:host:evilexample.com", false},
		{"network:host:*.b.example.com", "network:host:*.example.com", false},
		{"network:host:example.com", "browser:navigate:example.com", false},
		{"github:read:repos", "github:read:repos@octocat/hello-world", true},
		{"github:read:repos@octocat/hello-world", "github:read:repos", false},
		{"github:write:issues@octocat/a", "github:read:issues@octocat/a", false},
		{"app:invoke:notes", "app:invoke:notes.add", true},
		{"app:invoke:notes", "app:invoke:notes-evil.add", false},
		{"app:invoke:notes.add", "app:invoke:notes", false},
		{"context:publish:notes.*", "context:publish:notes.added", true},
		{"context:publish:notes.*", "context:publish:notes.a.b", true},
		{"context:publish:notes.*", "context:publish:notes", false},
		{"context:publish:notes.a.*", "context:publish:notes.*", false},
	}
	for _, c := range cases {
		wide, err1 := ParseCapability(c.wide)
		narrow, err2 := ParseCapability(c.narrow)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got := wide.Covers(narrow); got != c.covers {
			t.Errorf("%s covers %s: %t, want %t", wide, narrow, got, c.covers)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"name", "version", "capabilities"}
	for got, want := range map[string]string{
		"nmae": "name", "names": "name", "Version": "version", "capabilites": "capabilities", "capability": "capabilities",
		"value": "", "": "", "secret": "", strings.Repeat("name", 100): "",
	} {
		if near := nearest(got, words); near != want {
			t.Errorf("nearest(%.20q) = %q, want %q", got, near, want)
		}
	}
}

package manifest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// hostile are inputs that are small for their effect on a careless parser, or
// large. Each is refused; none may cost much.
func hostile() map[string]string {
	to := func(s string, size int) string { return strings.Repeat(s, size/len(s)) }
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
	}
	keys := ""
	for i := range 5000 {
		keys += fmt.Sprintf("k%d: v\n", i)
	}
	return map[string]string{
		"alias bomb":        bomb,
		"deep lists":        to("[", 1e5),
		"deep mappings":     to("{a: ", 1e5),
		"deep dashes":       to("- ", 8000),
		"deep blocks":       deepBlock(80),
		"100 MiB":           to("a: b\n", 100<<20),
		"100 MiB line":      to("a", 100<<20),
		"a million items":   "capabilities:\n" + to("- a\n", 4e6),
		"many items":        "capabilities:\n" + to("- a\n", 200<<10),
		"many flow items":   "capabilities: [" + to("a,", 8000) + "]",
		"many flow lines":   "capabilities: [\n" + to("a,a,a,a\n", 200<<10) + "]",
		"many keys":         keys,
		"one key, repeated": to("name: b\n", 60<<10),
		"blank block lines": "description: |\n" + to("\n", 8000),
		"blank blocks":      strings.Repeat("description: |\n"+strings.Repeat("\n", 255), 30),
		"keys in blocks":    strings.Repeat("- a\n"+keys[:4000], 10),
		"blank lines":       to("\n", MaxBytes),
		"spaces":            to(" ", MaxBytes),
		"a long line":       "description: " + to("x", MaxBytes-100),
		"long quoted lines": "description: \"" + strings.Repeat(to("x ", 8000)+"\n  ", 30),
		"colons":            to("a:", 8000),
		"colons and spaces": to("a: ", 8000),
		"questions":         to("? ", 8000),
		"commas":            "[" + to(",", 8000) + "]",
		"ampersands":        to("&", 8000),
		"exclamation marks": to("!", 8000),
		"pipes":             to("|", 8000),
		"documents":         to("---\n", 20000),
		"comments":          to("#\n", 16000),
		"escapes":           "name: \"" + to(`\x41`, 8000) + "\"",
	}
}

func deepBlock(levels int) string {
	var b strings.Builder
	for i := range levels {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// TestHostileInputIsCheap bounds memory, which is the same on every machine;
// the time is bounded by what memory can be filled.
func TestHostileInputIsCheap(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			raw := []byte(text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse("berth.yml", raw)
			runtime.ReadMemStats(&after)
			var faults Errors
			if !errors.As(err, &faults) {
				t.Fatalf("accepted, or another error: %v", err)
			}
			checkFaults(t, raw[:min(len(raw), 1<<20)], faults)
			const most = 64 << 20 // allocated in all, most of it garbage at once
			if took := after.TotalAlloc - before.TotalAlloc; took > most {
				t.Errorf("allocated %d MiB in all, want at most %d", took>>20, most>>20)
			}
		})
	}
}

func TestTheLargestManifestFits(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: large\nversion: 0.1.0\ncapabilities:\n")
	for i := range maxCapabilities - 2*maxPorts {
		fmt.Fprintf(&b, "  - filesystem:read:/workspace/folder-%d\n", i)
	}
	for i := range maxPorts {
		fmt.Fprintf(&b, "  - network:connect:%d\n  - network:bind:%d\n", 1000+i, 2000+i)
	}
	b.WriteString("exports:\n")
	for i := range maxExports {
		fmt.Fprintf(&b, "  - name: export_%d\n    description: Some words on what it does.\n    input: { path: string, content: string, mode: integer }\n    output: { bytes: integer }\n", i)
	}
	m, err := Parse("berth.yml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Capabilities) != maxCapabilities || len(m.Exports) != maxExports {
		t.Errorf("%d capabilities, %d exports", len(m.Capabilities), len(m.Exports))
	}
	raw := strings.Replace(b.String(), "exports:", "  - network:bind:9999\nexports:", 1)
	if _, err := Parse("berth.yml", []byte(raw)); err == nil {
		t.Error("one capability more was accepted")
	}
}

func TestManyPorts(t *testing.T) {
	raw := "name: a\nversion: 0.1.0\ncapabilities:\n"
	for i := range maxPorts + 5 {
		raw += fmt.Sprintf("  - network:bind:%d\n", 1+i)
	}
	_, err := Parse("berth.yml", []byte(raw))
	var faults Errors
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line != 3+maxPorts+1 {
		t.Errorf("got %v, want one fault at the first port too many", err)
	}
}

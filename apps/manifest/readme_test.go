package manifest

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestReadmeNamesEverything keeps the reference in step with the parser.
func TestReadmeNamesEverything(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(raw)
	for _, of := range kinds() {
		if want := "`" + string(of.kind) + ":" + of.form + "`"; !strings.Contains(readme, want) {
			t.Errorf("apps/README.md does not have %s", want)
		}
	}
	// The hint for an absurd key lists the known ones.
	for where, text := range map[string]string{
		"":           "qqqqqqqqqqqq: 1",
		"resources.": "resources: { qqqqqqqqqqqq: 1 }",
	} {
		_, err := Parse("berth.yml", []byte(text))
		var faults Errors
		if !errors.As(err, &faults) {
			t.Fatal(err)
		}
		list := ""
		for _, f := range faults {
			if names, ok := strings.CutPrefix(f.Hint, "one of "); ok {
				list = names
			}
		}
		if list == "" {
			t.Fatalf("no list of keys in %v", faults)
		}
		for name := range strings.SplitSeq(list, ", ") {
			if name == "resources" {
				continue // stands there by its members
			}
			if !strings.Contains(readme, "\n| `"+where+name+"` |") {
				t.Errorf("apps/README.md does not have a row for %s%s", where, name)
			}
		}
	}
}

// TestReadmeExample parses the manifest that the README shows.
func TestReadmeExample(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	if _, err := Parse("berth.yml", []byte(example)); err != nil {
		t.Error(err)
	}
}

package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestManual: docs/cli.md names every command and every flag.
func TestManual(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	manual := string(raw)
	commands, flags := 0, 0
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			commands++
			name := strings.TrimSpace(path + " " + sub.Name())
			last := sub.Name()
			if !strings.Contains(manual, "`berth "+name) && !strings.Contains(manual, "`"+name) && !strings.Contains(manual, ", `"+last+"`") {
				t.Errorf("docs/cli.md has no command %q", name)
			}
			sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if f.Name == "help" {
					return
				}
				flags++
				if !strings.Contains(manual, "`--"+f.Name) && !strings.Contains(manual, " --"+f.Name) {
					t.Errorf("docs/cli.md has no flag --%s of %q", f.Name, name)
				}
			})
			walk(sub, name)
		}
	}
	walk(newRoot(World{Err: io.Discard, Out: io.Discard}), "")
	if commands < 20 || flags < 40 {
		t.Errorf("%d commands and %d flags", commands, flags)
	}
}

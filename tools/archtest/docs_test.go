package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// word is a package that tests of are named, or the name of a test or a script:
// "init/sandbox: TestAttacks (FS-01, CN), TestTree; host/cli: native/os.txtar".
var word = regexp.MustCompile(`\b((?:apps|host|init|kernel|rootfs|sdk|tools|release)(?:/[a-z0-9]+)*): |\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)|\b([a-z]+(?:/[a-z]+)*\.txtar)`)

// missingTests are those that a text names and that are not there.
func missingTests(root, text string) (missing []string, found int) {
	for line := range strings.Lines(text) {
		pkg, source := "", ""
		for _, m := range word.FindAllStringSubmatch(line, -1) {
			if m[1] != "" {
				pkg, source = m[1], testsOf(filepath.Join(root, m[1]))
				continue
			}
			if pkg == "" {
				continue // of a sentence that has named its package before
			}
			there := m[2] != "" && strings.Contains(source, "func "+m[2]+"(")
			if m[3] != "" {
				for _, dir := range []string{"", "*"} {
					all, _ := filepath.Glob(filepath.Join(root, pkg, "testdata", dir, m[3]))
					there = there || len(all) > 0
				}
			}
			if found++; !there {
				missing = append(missing, pkg+": "+m[2]+m[3])
			}
		}
	}
	return missing, found
}

// testsOf is the text of a folder's tests.
func testsOf(dir string) string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err == nil {
			b.Write(raw)
		}
	}
	return b.String()
}

// TestClaimsNameTests: every test that a page of docs/ names exists, so that no
// claim rests on one that is gone.
func TestClaimsNameTests(t *testing.T) {
	root := filepath.Join("..", "..")
	for page, least := range map[string]int{"claims.md": 200, "threat-model.md": 0, "attacks.md": 20, "architecture.md": 0} {
		raw, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		missing, found := missingTests(root, string(raw))
		for _, name := range missing {
			t.Errorf("docs/%s names a test that is not there: %s", page, name)
		}
		if found < least {
			t.Errorf("docs/%s names %d tests, want at least %d", page, found, least)
		}
	}
}

func TestMissingTestsAreFound(t *testing.T) {
	missing, found := missingTests(filepath.Join("..", ".."), "| tools/archtest: TestArchitecture, TestNowhere; host/cli: native/os.txtar, none.txtar (R) | tools/none: FuzzNothing |")
	if want := "tools/archtest: TestNowhere, host/cli: none.txtar, tools/none: FuzzNothing"; strings.Join(missing, ", ") != want || found != 5 {
		t.Errorf("missing %q of %d", missing, found)
	}
}

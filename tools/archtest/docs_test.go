package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var testName = regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*)\b`)

// TestDocumentedTestsExist keeps docs/claims.md from naming a test that is gone.
func TestDocumentedTestsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	_, files, err := scan(root)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test {
				tests[fn.Name.Name] = true
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(root, "docs", "claims.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllStringSubmatch(string(raw), -1)
	if len(named) < 10 {
		t.Errorf("docs/claims.md names %d tests; has its form changed?", len(named))
	}
	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("docs/claims.md names %s, which does not exist", m[1])
		}
	}
}

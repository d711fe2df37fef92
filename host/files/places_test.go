package files

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFindPlaces(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		".env", "src/.ENV", "src/main.go", ".git/hooks/pre-commit", ".git/config", ".git/HEAD",
		"sub/.vscode/settings.json", "sub/.vscode/.env", "node_modules/x/.git/config",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(root, ".claude")); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name              string
		exclude           []string
		allow             bool
		hidden, protected []string
	}{
		{"nothing", nil, true, nil, nil},
		{"protection", nil, false, nil, []string{".git/config", ".git/hooks", "node_modules/x/.git/config", "sub/.vscode"}},
		{"exclusion", []string{".env"}, true, []string{".env", "src/.ENV", "sub/.vscode/.env"}, nil},
		{"both", []string{".env", "src"}, false, []string{".env", "src", "sub/.vscode/.env"}, []string{".git/config", ".git/hooks", "node_modules/x/.git/config", "sub/.vscode"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := FindPlaces(context.Background(), root, c.exclude, c.allow)
			if err != nil || p.Cut {
				t.Fatal(p, err)
			}
			if !slices.Equal(p.Hidden, c.hidden) || !slices.Equal(p.Protected, c.protected) {
				t.Errorf("hidden %q, protected %q", p.Hidden, p.Protected)
			}
		})
	}
}

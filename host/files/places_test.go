package files

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// TestFindPlacesOddNames: what an app may call a folder must not stop the next
// start, and what is below it is found.
func TestFindPlacesOddNames(t *testing.T) {
	root := t.TempDir()
	var want []string
	for _, name := range []string{"\x1b[31m", "a\nb", "bad\xff\xfe", "z"} {
		if err := os.MkdirAll(filepath.Join(root, name, ".vscode"), 0o755); err != nil {
			t.Fatal(err)
		}
		want = append(want, name+"/.vscode")
	}
	if err := os.Mkdir(filepath.Join(root, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	p, err := FindPlaces(context.Background(), root, nil, false)
	if err != nil || !slices.Equal(p.Protected, want) {
		t.Errorf("protected %q, %v, want %q", p.Protected, err, want)
	}
}

// TestFindPlacesDeep: looking into an endless tower of folders would take an
// endless time.
func TestFindPlacesDeep(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, strings.Repeat("d/", 2*maxDepth)), 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err := FindPlaces(context.Background(), root, nil, false); err != nil || !p.Cut {
		t.Errorf("protection: %+v, %v, want it cut", p, err)
	}
	if _, err := FindPlaces(context.Background(), root, []string{".env"}, false); err == nil {
		t.Error("exclusion: no error, although not all of it was looked at")
	}
}

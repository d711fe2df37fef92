package files

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berthos/berth/host/hint"
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
	for _, name := range []string{"src/main.go", ".git/hooks/pre-commit"} {
		if err := os.Chmod(filepath.Join(root, name), 0o755|os.ModeSetuid); err != nil {
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
		setuid            []string
	}{
		{"nothing", nil, true, nil, nil, []string{".git/hooks/pre-commit", "src/main.go"}},
		{"protection", nil, false, nil, []string{".git/config", ".git/hooks", "node_modules/x/.git/config", "sub/.vscode"}, []string{"src/main.go"}},
		{"exclusion", []string{".env"}, true, []string{".env", "src/.ENV", "sub/.vscode/.env"}, nil, []string{".git/hooks/pre-commit", "src/main.go"}},
		{"both", []string{".env", "src"}, false, []string{".env", "src", "sub/.vscode/.env"}, []string{".git/config", ".git/hooks", "node_modules/x/.git/config", "sub/.vscode"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := FindPlaces(context.Background(), root, Search{Exclude: c.exclude, HostExecuted: WithoutNames(HostExecutedNames(), map[bool][]string{true: HostExecutedNames()}[c.allow]), Setuid: true})
			if err != nil || p.Cut {
				t.Fatal(p, err)
			}
			if !slices.Equal(p.Hidden, c.hidden) || !slices.Equal(p.Protected, c.protected) || !slices.Equal(p.Setuid, c.setuid) {
				t.Errorf("hidden %q, protected %q, setuid %q", p.Hidden, p.Protected, p.Setuid)
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
	p, err := FindPlaces(context.Background(), root, Search{HostExecuted: HostExecutedNames()})
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
	if p, err := FindPlaces(context.Background(), root, Search{HostExecuted: HostExecutedNames()}); err != nil || !p.Cut {
		t.Errorf("protection: %+v, %v, want it cut", p, err)
	}
	if _, err := FindPlaces(context.Background(), root, Search{Exclude: []string{".env"}, HostExecuted: HostExecutedNames()}); err == nil {
		t.Error("exclusion: no error, although not all of it was looked at")
	}
}

// TestFindPlacesMany: each place is a mount, so their number has an end, and the
// error says what to do.
func TestFindPlacesMany(t *testing.T) {
	root := t.TempDir()
	for i := range maxPlaces + 1 {
		if err := os.MkdirAll(filepath.Join(root, strconv.Itoa(i), ".vscode"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := FindPlaces(context.Background(), root, Search{HostExecuted: HostExecutedNames()})
	if err == nil || hint.Of(err) == "" {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	if err := os.Remove(filepath.Join(root, "0", ".vscode")); err != nil {
		t.Fatal(err)
	}
	if _, err := FindPlaces(context.Background(), root, Search{HostExecuted: HostExecutedNames()}); err != nil {
		t.Error(err) // control: one less
	}
}

package hostexecuted

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/host/files"
)

func TestApply(t *testing.T) {
	got, err := apply("x.yml", []byte("add:\n  - name: deploy/hooks.toml\n    reason: our deploy tool runs it\nremove:\n  - name: .npmrc\n    reason: the app keeps it\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := append(files.WithoutNames(files.HostExecutedNames(), []string{".npmrc"}), "deploy/hooks.toml")
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if match, err := files.Matcher(got); err != nil || !match("a/deploy/hooks.toml", false) || match(".npmrc", false) || !match(".envrc", false) {
		t.Errorf("the list does not say what it should: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "empty",
		"extra: []":                              "extra",
		"add: [.x]":                              "must",
		"add: [{name: .x}]":                      "reason",
		"add: [{reason: x}]":                     "name",
		"add: [{name: '*', reason: x}]":          "covers every name",
		"add: [{name: '../x', reason: x}]":       "stay in the folder",
		"add: [{name: /etc, reason: x}]":         "clean",
		"add: [{name: .envrc, reason: x}]":       "on the list anyway",
		"remove: [{name: .other, reason: x}]":    "not on the list",
		"remove: [{name: berth.yml, reason: x}]": "cannot be removed",
		"add: [{name: .x, reason: x}, {name: .x, reason: y}]": "twice",
	} {
		if _, err := apply("x.yml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	load := func(want int) {
		t.Helper()
		got, err := Load()
		if err != nil || len(got) != want {
			t.Errorf("%d names, %v, want %d", len(got), err, want)
		}
	}
	refused := func(part string) {
		t.Helper()
		if _, err := Load(); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q", err, part)
		}
	}
	all := len(files.HostExecutedNames())
	load(all)
	name, err := File()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Dir(name), 0o700))
	load(all)
	must(os.WriteFile(name, []byte("add:\n  - {name: .x, reason: y}\n"), 0o600))
	load(all + 1) // control
	must(os.Chmod(name, 0o622))
	refused("other users may write")
	must(os.Chmod(name, 0o600))
	must(os.Chmod(filepath.Dir(name), 0o777))
	refused("other users may write")
	must(os.Chmod(filepath.Dir(name), 0o700))
	if os.Geteuid() == 0 {
		must(os.Chown(name, 65534, 65534))
		refused("belongs to uid 65534")
		must(os.Chown(name, 0, 0))
	}
	must(os.Rename(name, name+".real"))
	must(os.Symlink(name+".real", name))
	refused("symbolic link")
	must(os.Remove(name))
	must(os.Mkdir(name, 0o700))
	if _, err := Load(); err == nil {
		t.Error("a folder was read")
	}
}

// The page in docs has the list as the code has it.
func TestPageHasTheList(t *testing.T) {
	raw, err := os.ReadFile("../../docs/host-executed.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := Table(); !strings.Contains(string(raw), want) {
		t.Errorf("docs/host-executed.md has another table; it must be:\n%s", want)
	}
}

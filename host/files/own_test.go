//go:build linux

package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/host/hint"
)

// TestOwnFoldersAreNotShared: no app gets to write where what it may do is kept.
func TestOwnFoldersAreNotShared(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	for _, v := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"} {
		t.Setenv(v, "")
	}
	at := func(rel string) string {
		dir := filepath.Join(home, rel)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	private, err := PrivateFolder("", "notes")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(home, "link")
	if err := errors.Join(os.Symlink(at(".config"), link)); err != nil {
		t.Fatal(err)
	}
	runtime := at("run/berth")
	for _, dir := range []string{home, at(".config"), at(".config/berth"), at(".config/berth/grants"), at(".local"), at(".local/state"), at(".local/share/berth"), at(".local/share/berth/apps"), at(".local/share/berth/apps/notes"), link, at("run"), runtime, at("run/berth/sandboxes")} {
		if err := CheckOwn(dir, runtime); err == nil || hint.Of(err) == "" {
			t.Errorf("%s can be shared: %v", dir, err)
		}
	}
	for _, dir := range []string{at("project"), at(".config/berthold"), at(".config/other"), private, at(".local/share/berth/apps/notes/workspace/sub"), at("runner")} {
		if err := CheckOwn(dir, runtime); err != nil {
			t.Error(err)
		}
	}
	// A folder to which the configuration was moved.
	moved := at("dotfiles/berth")
	if err := errors.Join(os.RemoveAll(at(".config/berth")), os.Symlink(moved, filepath.Join(home, ".config/berth"))); err != nil {
		t.Fatal(err)
	}
	if CheckOwn(at("dotfiles")) == nil {
		t.Error("the folder to which the configuration is a link can be shared")
	}
}

// TestManifestsStayProtected: whatever a policy asks for, on a share that the
// server serves to it manifests are not changed.
func TestManifestsStayProtected(t *testing.T) {
	for _, asked := range [][]string{{"berth.yml"}, {"BERTH.YML"}, {".envrc", "berth.yml"}} {
		match, err := Matcher(WithoutNames(HostExecutedNames(), asked))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"berth.yml", "a/b/berth.yml", "a/Berth.yml"} {
			if !match(name, false) {
				t.Errorf("%q allowed: %s can be changed", asked, name)
			}
		}
		if match(".envrc", false) == (asked[0] == ".envrc") { // the control
			t.Errorf("%q allowed: .envrc", asked)
		}
	}
}

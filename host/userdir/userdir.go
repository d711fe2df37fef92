// Package userdir owns where berth keeps files of a user: below the XDG base
// directories.
package userdir

import (
	"os"
	"path/filepath"

	"github.com/berthos/berth/host/hint"
)

// Kind is one of the base directories.
type Kind struct{ env, inHome string }

// Base directories.
var (
	Config = Kind{"XDG_CONFIG_HOME", ".config"}     // what the user decided
	State  = Kind{"XDG_STATE_HOME", ".local/state"} // what berth remembers
	Data   = Kind{"XDG_DATA_HOME", ".local/share"}  // apps' data
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Config, State, Data} }

// Dir is berth's folder, which may not exist.
func (k Kind) Dir() (string, error) { return k.DirFrom(os.Getenv) }

// DirFrom is Dir in another environment, but for the home that the user database
// names where HOME does not.
func (k Kind) DirFrom(getenv func(string) string) (string, error) {
	base := getenv(k.env)
	if !filepath.IsAbs(base) { // the specification: a relative one is to be ignored
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "", hint.Errorf("set HOME or "+k.env, "cannot find berth's folder: neither HOME nor %s names one", k.env)
		}
		base = filepath.Join(home, k.inHome)
	}
	return filepath.Join(base, "berth"), nil
}

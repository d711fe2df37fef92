package imagebuild

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Recipe is what an image is made of, a file of images/.
type Recipe struct {
	Name     string   `json:"name"`
	Arch     []string `json:"arch"`            // for which it can be built
	Landlock int      `json:"landlock_abi"`    // what the kernel promises
	Errata   int      `json:"landlock_errata"` // bit N-1: that erratum N is fixed
	Apps     []string `json:"apps"`            // first-party apps in the root, folders of apps/
}

// ReadRecipe reads a recipe strictly.
func ReadRecipe(name string) (Recipe, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return Recipe{}, fmt.Errorf("cannot read image recipe: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var r Recipe
	if err := dec.Decode(&r); err != nil {
		return Recipe{}, fmt.Errorf("cannot read image recipe %s: %w", name, err)
	}
	if r.Name == "" || r.Landlock < 1 || !slices.IsSorted(r.Apps) {
		return Recipe{}, fmt.Errorf("cannot read image recipe %s: name is empty, landlock_abi is 0 or apps are not sorted", name)
	}
	return r, nil
}

func (r Recipe) check(arch string) error {
	if !slices.Contains(r.Arch, arch) {
		return fmt.Errorf("cannot build image %s for %q: its recipe has %s", r.Name, arch, strings.Join(r.Arch, ", "))
	}
	return nil
}

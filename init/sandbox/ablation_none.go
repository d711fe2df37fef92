//go:build !ablation

package sandbox

import "fmt"

// checkAblate refuses every ablation: only the test image's enforcer, built
// with the tag ablation, can leave something out.
func checkAblate(names []string) error {
	if len(names) > 0 {
		return fmt.Errorf("asked to leave out %q: this enforcer leaves nothing out", names)
	}
	return nil
}

func (e *enforcer) ablated(string) bool { return false }

// visible returns what is attached to the app's tree: everything that was taken.
func (e *enforcer) visible(sources []source) ([]source, error) { return sources, nil }

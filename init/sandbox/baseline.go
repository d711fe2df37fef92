package sandbox

import (
	"fmt"

	"github.com/berthos/berth/init/policy"
)

// known wants each grant to be in the policy, or in the baseline that init/policy
// lists: what is said about apps is said from there.
func (e *enforcer) known(g grant) error {
	if place, ok := policy.BaselineAt(g.Path, e.hasTerminals()); ok {
		if kind(place.Use) != g.Kind || place.Path != g.Path {
			return fmt.Errorf("%s would be granted as %q, and the baseline has %q at %s", g.Path, g.Kind, place.Use, place.Path)
		}
		return nil
	}
	places := []string{"/tmp", "/workspace"}
	for _, s := range e.Spec.Shares {
		places = append(places, s.Aliases...)
	}
	for _, place := range places {
		if policy.Below(g.Path, place) {
			return nil
		}
	}
	return fmt.Errorf("%s would be granted to every app, and the baseline does not have it", g.Path)
}

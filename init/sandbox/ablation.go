//go:build ablation

package sandbox

import (
	"fmt"
	"slices"
)

// checkAblate accepts the names of steps and of parts of steps. This file is
// part of the test image's enforcer only, whose index berth refuses for apps.
func checkAblate(names []string) error {
	known := append(Required(ProfileVM), ablateSysctls, ablateHide, ablateProc, ablateReadOnly, ablateNoExec, ablateNoDev)
	for _, name := range names {
		if name == StepMounts || !slices.Contains(known, name) {
			return fmt.Errorf("cannot leave out %q: there are %v", name, known)
		}
	}
	return nil
}

func (e *enforcer) ablated(name string) bool { return slices.Contains(e.Spec.Ablate, name) }

//go:build ablation

package sandbox

import (
	"fmt"
	"slices"
)

// checkAblate accepts the names of steps and of parts of steps. This file is
// part of the test image's enforcer only, whose index berth refuses for apps.
func checkAblate(names []string) error {
	known := append(Required(ProfileVM), ablateSysctls, ablateHide, ablateProc, ablateReadOnly, ablateNoExec, ablateNoDev, ablateTerminal)
	for _, name := range names {
		if name == StepMounts || name == StepSupervisor || !slices.Contains(known, name) {
			return fmt.Errorf("cannot leave out %q: there are %v", name, known)
		}
	}
	return nil
}

func (e *enforcer) ablated(name string) bool { return slices.Contains(e.Spec.Ablate, name) }

// visible returns what is attached to the app's tree: with mount-hide left out,
// each share as a whole, so that Landlock alone tells what is granted of it.
func (e *enforcer) visible(sources []source) ([]source, error) {
	if !e.ablated(ablateHide) {
		return sources, nil
	}
	var whole []bind
	for _, s := range e.Spec.Shares {
		for _, at := range append([]string{s.Path}, s.Aliases...) {
			whole = append(whole, bind{source: s.Source, rel: ".", target: at, readOnly: s.ReadOnly})
		}
	}
	parts, err := e.gatherShares(whole)
	n := 2 + len(e.devices())
	return append(sources[:n:n], parts...), err // all but the granted parts
}

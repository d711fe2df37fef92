package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berthos/berth/init/policy"
)

// step is one row of the order of enforcement. What it returns besides an
// error is a detail for the report, mostly empty.
type step struct {
	name string
	run  func(*enforcer) (string, error)
}

// outside is what the supervisor does, still privileged, to the namespaces
// that PID 1 made for it, and at last to itself.
var outside = []step{
	{StepCgroup, joinCgroups},        // memory, processes and CPU are counted from here on
	{StepNetwork, closeNetwork},      // own loopback up, known holes shut
	{StepHostname, setHostname},      // of its own uts namespace
	{StepMounts, buildAndEnter},      // what was not granted does not exist
	{StepSupervisor, dropSupervisor}, // starts the enforcer and keeps nothing
}

// inside is what the enforcer does to itself, on the one thread that executes
// the app. Each step takes something away that a later one does not need.
var inside = []step{
	{StepRlimits, setRlimits},            // no core files, bounded descriptors
	{StepDescriptors, closeDescriptors},  // nothing inherited but what the contract names
	{StepIdentity, changeIdentity},       // the app's uid and gid, no groups
	{StepCapabilities, dropCapabilities}, // all five sets, and no way to regain any
	{StepNoNewPrivs, setNoNewPrivs},      // execve grants nothing
	{StepObjects, openCanaryObjects},     // what must be refused below works here
	{StepLandlock, restrictLandlock},     // what was not granted is refused
	{StepSeccomp, loadSeccomp},           // fewer ways to ask
	{StepCanaries, checkCanaries},        // what worked above is refused now
}

// enforcer is the state of one start. The supervisor hands the exported part
// to its child.
type enforcer struct {
	plan
	policy policy.Policy
	report reporter
	canary canary
	abi    int
	child  child
}

// plan is what the supervisor hands to the enforcer.
type plan struct {
	Spec    Spec     `json:"spec"`
	Grants  []grant  `json:"grants"`
	Filters filters  `json:"filters"`
	Done    []string `json:"done"`
	Weaker  []string `json:"weaker"`
}

// weaken notes a separation that does not hold on this machine.
func (e *enforcer) weaken(sentence string) { e.Weaker = append(e.Weaker, sentence) }

// errNotHere is returned by a step that the machine can not do. It counts as
// not done: where the profile requires it, nothing is executed.
var errNotHere = errors.New("not possible on this machine")

// do runs steps in order and stops at the first that fails.
func (e *enforcer) do(steps []step) error {
	for _, s := range steps {
		if e.ablated(s.name) {
			continue
		}
		detail, err := s.run(e)
		if errors.Is(err, errNotHere) && !slices.Contains(Required(e.Spec.Profile), s.name) {
			continue // noted as weaker
		}
		if err != nil {
			return &stepError{s.name, err}
		}
		e.Done = append(e.Done, s.name)
		if err := e.report.send(Report{Step: &StepDone{Name: s.name, Detail: detail}}); err != nil {
			return &stepError{s.name, err}
		}
	}
	return nil
}

// complete fails unless every step that the profile requires was done.
func (e *enforcer) complete() error {
	missing := slices.DeleteFunc(Required(e.Spec.Profile), func(name string) bool {
		return slices.Contains(e.Done, name) || e.ablated(name)
	})
	if len(missing) > 0 {
		return &stepError{missing[0], fmt.Errorf("profile %s requires %s, which did not happen", e.Spec.Profile, strings.Join(missing, ", "))}
	}
	return nil
}

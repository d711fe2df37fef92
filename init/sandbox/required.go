package sandbox

import "slices"

// Names of the steps, in the order in which they are done (steps.go).
const (
	StepCgroup       = "cgroup"
	StepNetwork      = "network"
	StepHostname     = "hostname"
	StepMounts       = "mounts"
	StepSupervisor   = "supervisor"
	StepRlimits      = "rlimits"
	StepDescriptors  = "descriptors"
	StepIdentity     = "identity"
	StepCapabilities = "capabilities"
	StepNoNewPrivs   = "no_new_privs"
	StepObjects      = "canary-objects"
	StepLandlock     = "landlock"
	StepSeccomp      = "seccomp"
	StepCanaries     = "canaries"
)

// Names that only a Report uses: what can fail before, between and after the
// steps.
const (
	StepSpec  = "spec"  // what was handed over can not be used
	StepStart = "start" // the plan could not be handed to the enforcer
	StepExec  = "exec"  // everything is enforced, but the program can not be executed
)

// Required returns the steps without which a profile executes nothing. Only an
// ordinary user's machine may do without a cgroup.
func Required(p Profile) []string {
	all := []string{
		StepCgroup, StepNetwork, StepHostname, StepMounts, StepSupervisor,
		StepRlimits, StepDescriptors, StepIdentity, StepCapabilities, StepNoNewPrivs,
		StepObjects, StepLandlock, StepSeccomp, StepCanaries,
	}
	switch p {
	case ProfileVM, ProfileNativeRoot:
		return all
	case ProfileNativeUser:
		return slices.DeleteFunc(all, func(s string) bool { return s == StepCgroup })
	}
	return nil // no such profile: Spec.check refuses it
}

// StepRecords is done by PID 1 in a VM once the canaries' denials have come back
// as the kernel's records.
const StepRecords = "records"

// Confirmed returns the steps that the host wants to hear of before it lets an
// app of this profile execute.
func Confirmed(p Profile) []string {
	if p == ProfileVM {
		return append(Required(p), StepRecords)
	}
	return Required(p)
}

// Parts of the steps "network" and "mounts" that the test image can leave out.
const (
	ablateSysctls  = "net-sysctls"    // TCP fast open and MPTCP stay on
	ablateHide     = "mount-hide"     // shares appear whole and writable, not what is granted of them
	ablateProc     = "mount-proc"     // /proc shows everything
	ablateReadOnly = "mount-ro"       // nothing is mounted read-only
	ablateNoExec   = "mount-noexec"   // shares are mounted without noexec
	ablateNoDev    = "mount-nodev"    // shares are mounted without nodev
	ablateTerminal = "mount-terminal" // the nodes of terminals exist for every app
)

// Exit codes of agent-init. Others are the app's own: its exit status, or
// ExitSignal plus the number of the signal that ended it.
const (
	ExitUsage      = 120 // called in a way that PID 1 never does
	ExitFailed     = 121 // a step failed, as reported; nothing was executed
	ExitNoGo       = 122 // FDGo ended without a 'g'; nothing was executed
	ExitNotStarted = 123 // every step was done, but execve failed
	ExitSignal     = 128
)

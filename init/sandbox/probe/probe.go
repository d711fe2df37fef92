// Package probe owns the attacks that a sandbox must refuse, as a table. Each
// says what it does, what counts as success, and which layers stand in its way,
// so that a test can take them away one by one. tools/attackapp runs them.
package probe

import (
	"errors"
	"slices"
	"syscall"
)

// Names of what can be left out, as the test image's enforcer knows them.
const (
	hide     = "mount-hide"
	readOnly = "mount-ro"
	noExec   = "mount-noexec"
	noDev    = "mount-nodev"
	proc     = "mount-proc"
	rlimits  = "rlimits"
	identity = "identity"
	caps     = "capabilities"
	landlock = "landlock"
	seccomp  = "seccomp"
)

// Layer is a set of ablations that together take one layer away.
type Layer []string

// root is the layer that keeps the app from being root: a uid of its own and
// no capability. Neither part does it alone.
var root = Layer{identity, caps}

// World is where a probe runs. The folders hold one folder for each probe,
// named by its ID, with a file "f" and a folder "d", owned by the app.
type World struct {
	Write  string // granted for writing
	Read   string // granted for reading
	Out    string // in the same share, not granted
	Canary string // of the app's own, not granted
	User   bool   // an ordinary user's machine, with one uid
	ABI    int    // of the kernel's Landlock
}

// Probe is one attack. Run returns nil if it succeeded, having made sure of the
// effect, and the refusal otherwise.
type Probe struct {
	ID   string
	What string
	// Layers stand in the way; each alone must be enough. A probe without any
	// is refused by what the app's tree and namespaces do not contain.
	Layers []Layer
	// Want are the refusals that count when every layer is there.
	Want []syscall.Errno
	// Absent are further answers, besides ENOSYS, of a kernel that was built
	// without what is attacked. There is nothing to take away then.
	Absent []syscall.Errno
	// Must is a use that has to work in every run.
	Must bool
	// Not says where a probe makes no sense, and why.
	Not func(World) string
	Run func(w World, id string) error
}

// All returns every probe that makes sense in w.
func All(w World) (list []Probe) {
	list = slices.Concat(contents(), detours(), names(), scopes(), trees(w), mounts(), newMounts(), namespaces(w),
		processes(w), channels(w), kernel(), identityProbes())
	return slices.DeleteFunc(list, func(p Probe) bool { return p.Not != nil && p.Not(w) != "" })
}

// Find returns the probe with an ID.
func Find(w World, id string) (Probe, bool) {
	all := All(w)
	i := slices.IndexFunc(all, func(p Probe) bool { return p.ID == id })
	if i < 0 {
		return Probe{}, false
	}
	return all[i], true
}

// needsRoot is for what even an unrestricted ordinary user can not do.
func needsRoot(w World) string {
	if w.User {
		return "no ordinary user can do it, sandboxed or not"
	}
	return ""
}

// needsUser is for what another uid refuses as well, unless its attacker has a
// capability that not every machine's root has.
func needsUser(w World) string {
	if !w.User {
		return "another uid stands in the way"
	}
	return ""
}

// errNoEffect says that a call reported success and did nothing.
var errNoEffect = errors.New("the call succeeded without effect")

func effect(err error, happened bool) error {
	if err == nil && !happened {
		return errNoEffect
	}
	return err
}

// reached turns the answer of a call that is made with arguments that no kernel
// accepts into success, unless the call itself was refused.
func reached(errno syscall.Errno) error {
	switch errno {
	case syscall.EPERM, syscall.ENOSYS, syscall.EACCES:
		return errno
	}
	return nil
}

func raw(nr uintptr, args ...uintptr) syscall.Errno {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return errno
}

// Package probe owns the attacks that a sandbox must refuse, as a table. Each
// says what it does, what counts as success, and which layers stand in its way,
// so that a test can take them away one by one. tools/attackapp runs them.
package probe

import (
	"errors"
	"slices"
	"strings"
	"syscall"
)

// Names of what can be left out, as the test image's enforcer knows them.
const (
	hide     = "mount-hide"
	readOnly = "mount-ro"
	noExec   = "mount-noexec"
	noDev    = "mount-nodev"
	proc     = "mount-proc"
	sysctls  = "net-sysctls"
	cgroup   = "cgroup"
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

// Landlock is the name of that layer.
const Landlock = landlock

// BeforeLandlock are the layers that the kernel asks before Landlock and that
// refuse much of what it would: what is left to it, it records. That what was not
// granted is not there belongs to them too, but without it no rule of a share in
// a VM would last: its files are other objects each time they are looked up.
func BeforeLandlock() []string { return []string{readOnly, noExec, noDev, seccomp} }

// Claims says whether a layer alone is claimed to refuse a probe.
func (p Probe) Claims(layer string) bool {
	return slices.ContainsFunc(p.Layers, func(l Layer) bool { return len(l) == 1 && l[0] == layer })
}

// World is where a probe runs. The folders hold one folder for each probe,
// named by its ID, with a file "f" and a folder "d", owned by the app.
type World struct {
	Write  string `json:"write"`  // granted for writing
	Read   string `json:"read"`   // granted for reading
	Out    string `json:"out"`    // in the same share, not granted
	Canary string `json:"canary"` // of the app's own, not granted
	Code   string `json:"code"`   // a file of the app's code
	User   bool   `json:"user"`   // an ordinary user's machine, with one uid
	ABI    int    `json:"abi"`    // of the kernel's Landlock
	Beyond string `json:"beyond"` // a file that the app may read, and not a process of it with fewer rights
	Victim Victim `json:"victim"` // another app, if there is one
	// VM is one as Berth boots it: its kernel executes nothing from memory, and
	// the share comes from another kernel, the host's.
	VM bool `json:"vm"`
}

// Inside is the world of an app to which a sandbox gave these folders.
func Inside(user bool, abi int) World {
	return World{Write: "/workspace/rw", Read: "/workspace/ro", Out: "/workspace/out", Canary: "/run/canary", Code: "/app/data", User: user, ABI: abi}
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
	// Blocks are rights of which Landlock's record of the denial names one, and
	// On is part of the record's object; "": the probe's ID, which is in the name
	// of its folders. Silent is the layer that refuses first and with the same
	// errno, so that there is no record while it is there.
	Blocks []string
	On     string
	Silent string
	// Harm says why a host without a sandbox is spared the control.
	Harm string
	// Raw is the attack as one system call, for processes that were forked and
	// can not do more. It is Run as well if that is nil.
	Raw func(w World, id string) Call
	Run func(w World, id string) error
}

// Group is the part of an ID that names a kind of probe.
func (p Probe) Group() string { return p.ID[:2] }

// Folders says whether a probe uses the folders of its name.
func (p Probe) Folders() bool {
	return p.Group() == "FS" || p.Group() == "MT" || strings.HasPrefix(p.ID, "PR-10")
}

// Spared says why the control of a probe is not run on a host that somebody
// uses; "": it harms nothing there and is.
func (p Probe) Spared(w World) string {
	family, _, _ := strings.Cut(strings.TrimRight(p.ID, "abcdefghijklmnopqrstuvwxyz"), "/")
	switch {
	case p.Harm != "":
		return p.Harm
	case p.Must:
		return "it is no attack"
	case p.Group() == "MT":
		return "it would change the host's mounts or namespaces"
	case slices.Contains([]string{"PR-01", "PR-02", "PR-04", "PR-07", "PR-18", "PR-19"}, family):
		return "the host's first process would be attacked"
	case slices.Contains([]string{"FS-29", "FS-30", "FS-31", "FS-32", "KS-13", "PR-05", "PR-08"}, family):
		return "it is about the sandbox's own tree and identity"
	case slices.Contains([]string{"FS-15", "FS-20", "RS-05", "NT-14", "KS-08", "KS-03", "KS-04"}, family):
		return "it would act on the whole host"
	case w.User && slices.ContainsFunc(p.Layers, func(l Layer) bool { return slices.Contains(l, caps) }):
		return "no ordinary user may do it"
	}
	return ""
}

// Do runs a probe where a process can do everything.
func (p Probe) Do(w World) error {
	if p.Run != nil {
		return p.Run(w, p.ID)
	}
	return p.Raw(w, p.ID).Do()
}

// All returns every probe that makes sense in w.
func All(w World) (list []Probe) {
	list = slices.Concat(contents(), detours(), links(w), names(), canaries(), scopes(), trees(w), own(w),
		mounts(), newMounts(), namespaces(w), processes(w), channels(w), kernel(), calls(), sockets(), identityProbes(), priorities(w))
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

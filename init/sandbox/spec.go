// Package sandbox owns the enforcement of one compiled policy on one process:
// the mount tree, cgroup, identity, Landlock, seccomp and canaries, in the
// order that README.md gives. PID 1 starts it through Spec and reads Report.
package sandbox

// Descriptors that PID 1 hands to the enforcer (agent-init), fixed by number.
const (
	FDSpec   = 3 // read: one JSON Spec, then EOF
	FDReport = 4 // write: JSON Report lines
	FDGo     = 5 // read: one byte 'g' lets the app execute; EOF means do not
	FDApp    = 6 // the app's listening unix socket; becomes FDAppInside in the app
	FDCgroup = 7 // first of Spec.Cgroups writable cgroup.procs files; those of Spec.Invoke follow
)

// Where an app finds its descriptors (sdk/protocol).
const (
	FDAppInside    = 3 // its listening socket
	FDInvokeInside = 4 // first of Spec.Invoke, in that order
)

// Profile names a machine's list of required steps.
type Profile string

// The profiles. Required (required.go) says what each demands.
const (
	ProfileVM         Profile = "vm"          // Berth's kernel: krun, qemu
	ProfileNativeRoot Profile = "native-root" // host kernel, started by root
	ProfileNativeUser Profile = "native-user" // host kernel, started by an ordinary user
)

// Spec is everything the enforcer needs besides its descriptors. Paths are
// those of PID 1's mount namespace.
type Spec struct {
	Profile  Profile  `json:"profile"`
	Policy   []byte   `json:"policy"`           // exact bytes of policy.Encode
	Worker   string   `json:"worker,omitempty"` // which process of the policy; empty: the main one
	UID      uint32   `json:"uid"`
	GID      uint32   `json:"gid"`
	Hostname string   `json:"hostname"`
	Code     string   `json:"code"` // folder that becomes /app, read-only
	Shares   []Share  `json:"shares"`
	Cgroups  int      `json:"cgroups"`      // how many descriptors follow from FDCgroup
	ABI      int      `json:"landlock_abi"` // promised by the machine; 0: as found, at least 4
	Ablate   []string `json:"ablate,omitempty"`
	// Invoke names the apps that this one may call: exactly those of its policy,
	// sorted. A descriptor for each follows those of the cgroup.
	Invoke []string `json:"invoke,omitempty"`
	// Secrets become environment variables of the app: exactly those that its
	// policy names.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Share is a mounted folder of the host, from which granted parts are bound.
type Share struct {
	Path     string   `json:"path"`   // where the app sees it
	Source   string   `json:"source"` // where PID 1 mounted it
	Aliases  []string `json:"aliases,omitempty"`
	ReadOnly bool     `json:"read_only,omitempty"`
}

// Report is one line from the enforcer. Exactly one field is set.
type Report struct {
	Step     *StepDone     `json:"step,omitempty"`
	Enforced *EnforcedDone `json:"enforced,omitempty"`
	Failed   *StepFailed   `json:"failed,omitempty"`
}

// StepDone says that one step was done.
type StepDone struct {
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// EnforcedDone is the last line before the enforcer waits for its 'g'.
type EnforcedDone struct {
	PolicySHA256 string   `json:"policy_sha256"`
	ABI          int      `json:"landlock_abi"`
	Steps        []string `json:"steps"`
	Weaker       []string `json:"weaker,omitempty"`
}

// StepFailed says which step failed and why; nothing is executed after it.
type StepFailed struct {
	Step   string `json:"step"`
	Reason string `json:"reason"`
}

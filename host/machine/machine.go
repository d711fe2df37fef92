// Package machine owns what all machines have in common: the types of a start,
// of a running instance, and of a probe's answer.
package machine

import (
	"context"
	"net"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// Names of the machines, as --machine takes them.
const (
	QEMU   = "qemu"
	Native = "native"
)

// Boundary says what an app that owns the guest's kernel would have to break next.
type Boundary string

// The two boundaries.
const (
	BoundaryVM     Boundary = "virtual machine" // Berth's own kernel in a VM
	BoundaryKernel Boundary = "host kernel"     // namespaces and Landlock on the host's kernel
)

// How shares reach the guest (link.Share.Source).
const (
	SourceP9   = "9p"   // the host serves them over the link
	SourceBind = "bind" // the machine has mounted them
)

// Machine boots sandboxes of one kind.
type Machine interface {
	Name() string             // one of the constants above
	Describe() string         // with details, for people: "qemu (KVM)", "native (as root)"
	Profile() sandbox.Profile // which steps the guest must have done
	Boundary() Boundary
	ShareSource() string // SourceP9 or SourceBind
	// Landlock is what the guest must find: the ABI (0: at least 4, as found), and
	// the errata that are fixed (bit N-1: erratum N).
	Landlock(img *image.Image) (abi, errata int)
	Start(ctx context.Context, c Config) (Instance, error)
}

// Config is what one sandbox needs from its machine.
type Config struct {
	Image  *image.Image
	Dir    *runtimedir.Dir // of this sandbox; the instance removes it when it is gone
	Shares []Share
	Apps   []App
}

// Share is a folder of the host.
type Share struct {
	Name     string
	HostDir  string // absolute, no symlinks
	ReadOnly bool
	// For machines that mount shares: places below HostDir that are covered by
	// something empty, and such that are read-only.
	Hide, Protect []string
}

// App names an app that will run and what it may use.
type App struct {
	Name      string
	Processes []string      // names of its processes (policy.Instance)
	Limits    policy.Limits // of all together
}

// Instance is a booted sandbox. It ends by itself when the link is closed, which
// is left to the caller also after its end: the guest's last words may be in it.
type Instance interface {
	Link() net.Conn
	BindPath(share string) string // where the guest finds a share; "" unless SourceBind
	Notes() []string              // what fell back to something slower or weaker, as sentences
	// Limit changes what an app of the Config may use, if the machine and not the
	// guest sees to it.
	Limit(app string, l policy.Limits) error
	// Wait blocks until nothing of the instance is left and says how it ended.
	Wait() End
	// Kill ends it at once. Wait tells when it is over.
	Kill()
}

// Limiter is an Instance whose apps' limits the machine changes by files.
type Limiter interface {
	LimitDirs() []string // the folders of these files
}

// LimitWatcher is an Instance that limits apps, and not the guest, so that only it
// knows which limit a process had hit when it ended.
type LimitWatcher interface {
	// LimitHit says which limit of an app was hit since it was last asked about
	// this process; "" if none. killed says that the process was killed.
	LimitHit(app, process string, killed bool) string
}

// End says how an instance ended.
type End struct {
	Reason  string // one line: "guest kernel panic: …", "signal: killed", "" if it ended in order
	Console string // the last lines of the guest's console
	Left    string // what could not be removed; the next start tries again
}

// Fact is one line of a probe's answer.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Result is a probe's answer: what was tried on this host and how it ended.
type Result struct {
	Machine  string   `json:"machine"`
	Variant  string   `json:"variant,omitempty"` // "kvm", "tcg"
	Boundary Boundary `json:"boundary"`
	OK       bool     `json:"ok"`
	Reason   string   `json:"reason"`          // one line
	Hint     string   `json:"hint,omitempty"`  // what to do about it
	Facts    []Fact   `json:"facts,omitempty"` // versions and such
	Weaker   []string `json:"weaker,omitempty"`
}

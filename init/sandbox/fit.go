package sandbox

import (
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// minABI is the first Landlock ABI with rules for TCP.
const minABI = 4

// erratumDisconnected is the fix of Landlock's erratum 3: a folder moved out of
// a bind mount by somebody else keeps the rules of that mount.
const erratumDisconnected = 1 << (3 - 1)

// kernel is what the running kernel says about its Landlock.
type kernel struct{ abi, errata int }

func kernelLandlock() (kernel, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return kernel{}, fmt.Errorf("cannot find Landlock in this kernel: %w", err)
	}
	errata, err := ll.LandlockGetErrata()
	if err != nil {
		errata = 0 // a kernel that can not tell has fixed none
	}
	return kernel{abi, errata}, nil
}

// fit is how much of the policy a kernel's Landlock can hold.
type fit struct {
	config landlock.Config // everything the kernel and go-landlock can handle
	closed []string        // what the ABI lacks and another layer refuses
	weaker []string        // what the ABI lacks and nothing else refuses
}

// history is what each Landlock ABI brought after minABI, and what stands in
// for it on an older kernel. Without a stand-in the app starts only on a
// machine that uses the host's kernel, and the record says what is weaker.
var history = []struct {
	abi            int
	closed, weaker string
}{
	{5, "device ioctls: there are no devices but the harmless ones", ""},
	{6, "signals and abstract sockets: own pid and network namespaces", ""},
	{7, "", "the kernel can not record what it denies: its Landlock ABI is below 7"},
	{9, "", "a unix socket that lies in a granted folder can be connected to, whoever listens: the kernel's Landlock ABI is below 9"},
	{10, "UDP: own network namespace with loopback only", ""},
}

// fitLandlock decides whether the kernel's Landlock is enough. It is pure.
func fitLandlock(k kernel, s Spec) (fit, error) {
	configs := [...]landlock.Config{landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11}
	want := max(s.ABI, minABI)
	if k.abi < want {
		return fit{}, fmt.Errorf("the kernel's Landlock ABI is %d, and %d is needed", k.abi, want)
	}
	f := fit{config: configs[min(k.abi-minABI, len(configs)-1)]}
	for _, h := range history {
		switch {
		case k.abi >= h.abi:
		case h.closed != "":
			f.closed = append(f.closed, h.closed)
		default:
			f.weaker = append(f.weaker, h.weaker)
		}
	}
	if k.errata&erratumDisconnected == 0 {
		f.weaker = append(f.weaker, "a folder moved out of a granted one while it is open can be renamed and linked with more rights than before: the kernel lacks the fix of Landlock erratum 3")
	}
	if s.Profile == ProfileVM && len(f.weaker) > 0 {
		return fit{}, fmt.Errorf("profile %s allows no weakness: %s", s.Profile, f.weaker[0])
	}
	return f, nil
}

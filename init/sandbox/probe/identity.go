package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// identityProbes are about who the app is and what it inherits.
func identityProbes() []Probe {
	return []Probe{
		{ID: "PR-05u", What: "become root", Layers: []Layer{root}, Want: notAllowed, Not: needsRoot, Run: func(World, string) error {
			return errnoOrNil(raw(unix.SYS_SETRESUID, 0, 0, 0))
		}},
		{ID: "PR-05g", What: "take a group", Layers: []Layer{root}, Want: notAllowed, Not: needsRoot, Run: func(World, string) error {
			return syscall.Setgroups([]int{0})
		}},
		{ID: "PR-05c", What: "hold a capability", Layers: []Layer{root}, Want: notAllowed, Run: func(World, string) error {
			return someCapability()
		}},
		{ID: "PR-08", What: "ask for a core file", Layers: []Layer{{rlimits, caps}}, Want: notAllowed, Run: func(World, string) error {
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
		}},
	}
}

// Confined checks what has to hold for every thread of an app: nothing of this
// is an attack, so there is no refusal to look at.
func Confined() error {
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("cannot see own threads: %v", err)
	}
	for _, name := range threads {
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, want := range []string{
			"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
			"CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
		} {
			if !strings.Contains(string(raw), want) {
				return fmt.Errorf("%s lacks %q:\n%s", name, want, raw)
			}
		}
	}
	return nil
}

func someCapability() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	if sets[0].Effective == 0 && sets[1].Effective == 0 {
		return unix.EPERM
	}
	return nil
}

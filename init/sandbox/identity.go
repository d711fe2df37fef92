package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scope says whose identity and capabilities change: the kernel keeps them for
// each thread.
type scope int

const (
	// thisThread is what the enforcer restricts: the one thread that executes
	// the app. execve ends all others, whatever they hold.
	thisThread scope = iota
	// allThreads is what the supervisor needs, which executes nothing further.
	allThreads
)

func (s scope) call(what string, trap uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	perform := syscall.Syscall6
	if s == allThreads {
		perform = syscall.AllThreadsSyscall6
	}
	if _, _, errno := perform(trap, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return fmt.Errorf("cannot %s: %w", what, errno)
	}
	return nil
}

// capset replaces the effective and permitted capabilities with those of mask,
// and the inheritable ones with none.
func (s scope) capset(mask uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets := [2]unix.CapUserData{
		{Effective: uint32(mask), Permitted: uint32(mask)},
		{Effective: uint32(mask >> 32), Permitted: uint32(mask >> 32)},
	}
	var err error
	if s == allThreads {
		_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
		if errno != 0 {
			err = errno
		}
	} else {
		err = unix.Capset(&header, &sets[0])
	}
	if err != nil {
		return fmt.Errorf("cannot set capabilities to %#x: %w", mask, err)
	}
	return nil
}

// become changes the identity to uid and gid without supplementary groups.
// Permitted capabilities outlive the change, for dropping takes one.
func (s scope) become(uid, gid uint32) error {
	u, g := uintptr(uid), uintptr(gid)
	for _, err := range []error{
		s.call("keep capabilities", unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1),
		s.call("drop groups", unix.SYS_SETGROUPS, 0, 0),
		s.call("change gid", unix.SYS_SETRESGID, g, g, g),
		s.call("change uid", unix.SYS_SETRESUID, u, u, u),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// changeIdentity makes the thread the app's uid and gid and reads them back.
func changeIdentity(e *enforcer) (string, error) {
	if e.Spec.Profile == ProfileNativeUser {
		if err := e.checkOnlyUser(); err != nil {
			return "", err
		}
	} else if err := thisThread.become(e.Spec.UID, e.Spec.GID); err != nil {
		return "", err
	}
	return fmt.Sprintf("uid %d, gid %d", e.Spec.UID, e.Spec.GID), e.checkIdentity()
}

// checkIdentity reads the identity back.
func (e *enforcer) checkIdentity() error {
	r, eff, s := unix.Getresuid()
	rg, effg, sg := unix.Getresgid()
	u, g := int(e.Spec.UID), int(e.Spec.GID)
	if r != u || eff != u || s != u || rg != g || effg != g || sg != g {
		return fmt.Errorf("cannot become uid %d, gid %d: still uids %d %d %d, gids %d %d %d", u, g, r, eff, s, rg, effg, sg)
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("cannot read groups: %w", err)
	}
	if len(groups) > 0 && e.Spec.Profile != ProfileNativeUser {
		return fmt.Errorf("cannot drop groups: still %v", groups)
	}
	return nil
}

// checkOnlyUser makes sure that uid 0 is only the user who started the sandbox,
// and says what that costs: there is no second uid to change to.
func (e *enforcer) checkOnlyUser() error {
	raw, err := os.ReadFile("/proc/thread-self/uid_map")
	if err != nil {
		return fmt.Errorf("cannot read the user namespace: %w", err)
	}
	if f := strings.Fields(string(raw)); len(f) != 3 || f[0] != "0" || f[2] != "1" {
		return fmt.Errorf("profile %s: uid 0 is not a user namespace's only uid, its map is %q", e.Spec.Profile, raw)
	}
	e.weaken("one uid: the app runs as the user who started it, and so do its supervisor and the other apps")
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("cannot read groups: %w", err)
	}
	if len(groups) > 0 {
		e.weaken(fmt.Sprintf("the app keeps the %d supplementary groups of the user who started it", len(groups)))
	}
	return nil
}

// securebits (linux/securebits.h): uid 0 is nothing special (NOROOT), a change
// of uid moves no capability (NO_SETUID_FIXUP), no ambient one can be raised,
// KEEP_CAPS stays off, and each of these is locked.
const securebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// keep drops every capability but those of mask, from all five sets, for good.
func (s scope) keep(mask uint64) error {
	now, err := permitted()
	if err != nil {
		return err
	}
	if err := s.capset(now); err != nil { // effective again after become
		return err
	}
	last := lastCapability()
	for n := uintptr(0); n <= last; n++ {
		if mask&(1<<n) != 0 {
			continue
		}
		if err := s.call("drop a bounding capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, n); err != nil {
			return err
		}
	}
	for _, err := range []error{
		s.call("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL),
		s.call("lock securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, securebits),
		s.capset(mask),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// permitted returns the capabilities that the thread may make effective.
func permitted() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return 0, fmt.Errorf("cannot read capabilities: %w", err)
	}
	return uint64(sets[0].Permitted) | uint64(sets[1].Permitted)<<32, nil
}

// dropCapabilities empties all five sets of the thread and reads them back.
func dropCapabilities(*enforcer) (string, error) {
	if err := thisThread.keep(0); err != nil {
		return "", err
	}
	status, err := threadStatus()
	if err != nil {
		return "", err
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if strings.Trim(status[set], "0") != "" || status[set] == "" {
			return "", fmt.Errorf("cannot drop capabilities: %s is still %q", set, status[set])
		}
	}
	return "", nil
}

func setNoNewPrivs(*enforcer) (string, error) {
	if err := thisThread.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return "", err
	}
	status, err := threadStatus()
	if err == nil && status["NoNewPrivs"] != "1" {
		err = errors.New("cannot set no_new_privs: it is still off")
	}
	return "", err
}

// lastCapability is the highest capability that the kernel knows.
func lastCapability() uintptr {
	n := uintptr(0)
	for n < 63 {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n+1, 0, 0, 0); err != nil {
			break
		}
		n++
	}
	return n
}

// threadStatus reads the calling thread's own status from the kernel.
func threadStatus() (map[string]string, error) {
	raw, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, fmt.Errorf("cannot read own status: %w", err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			status[key] = strings.TrimSpace(value)
		}
	}
	return status, nil
}

package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/berthos/berth/init/policy"
)

// abiUnix is the first Landlock ABI that tells an app's own unix sockets from
// others'.
const abiUnix = 9

// erratumDisconnected is the fix of Landlock's erratum 3: a folder that somebody
// else moves out of a bind mount keeps that mount's rules while it is open.
const erratumDisconnected = 1 << (3 - 1)

// restrictLandlock puts the thread, and so the app, into a domain of its own.
// go-landlock's Restrict would change all threads, by signals that an ABI 6
// kernel without its second erratum refuses between a domain and the outside.
func restrictLandlock(e *enforcer) (string, error) {
	if err := e.checkKernel(); err != nil {
		return "", err
	}
	fit, lost := policy.Fit(e.policy, e.abi, policy.Layers{Mounts: true, PID: true, Net: true, NoUnix: e.noUnix()})
	if len(lost) > 0 {
		return "", errors.New(strings.Join(lost, "; "))
	}
	config := landlock.Config{
		HandledAccessFS:  landlock.AccessFSSet(fit.FS),
		HandledAccessNet: landlock.AccessNetSet(fit.Net),
		Scoped:           landlock.ScopedSet(fit.Scope),
	}
	if fit.Log {
		config = config.EnableLoggingForSubprocesses() // execve would silence the domain
	}
	rules, err := e.rules(fit)
	if err != nil {
		return "", err
	}
	fd, flags, err := config.NewRulesetFD(rules...)
	if err != nil {
		return "", fmt.Errorf("cannot create ruleset: %w", err)
	}
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return "", fmt.Errorf("cannot restrict: %w", err)
	}
	detail := fmt.Sprintf("ABI %d, %d rules", e.abi, len(rules))
	return strings.Join(append([]string{detail}, fit.Instead...), "; "), nil
}

// kernelABI returns the version of the kernel's Landlock, 0 if there is none.
func kernelABI() int {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return abi
}

// checkKernel compares the kernel's Landlock with what the machine promised, and
// notes what it can not do.
func (e *enforcer) checkKernel() error {
	if want := max(e.Spec.ABI, policy.OldestABI); e.abi < want {
		return fmt.Errorf("the kernel's Landlock ABI is %d, and %d is needed", e.abi, want)
	}
	var weaker []string
	if !policy.History(e.abi).Log {
		weaker = append(weaker, "the kernel can not record what it denies: its Landlock ABI is below 7")
	}
	// A kernel that can not say what it fixed counts as one that fixed nothing.
	if errata, err := ll.LandlockGetErrata(); err != nil || errata&erratumDisconnected == 0 {
		weaker = append(weaker, "a folder that is open while somebody else moves it out of a granted one keeps fewer rules: the kernel lacks the fix of Landlock erratum 3")
	}
	if e.Spec.Profile == ProfileVM && len(weaker) > 0 {
		return fmt.Errorf("profile %s allows no weakness: %s", e.Spec.Profile, strings.Join(weaker, "; "))
	}
	for _, sentence := range weaker {
		e.weaken(sentence)
	}
	return nil
}

// noUnix says whether seccomp has to stand in for Landlock's resolve_unix: where
// the app sees a folder in which somebody else can have put a socket.
func (e *enforcer) noUnix() bool {
	return e.abi < abiUnix && slices.ContainsFunc(e.policy.Paths, func(g policy.Path) bool {
		return !policy.Below(g.Path, "/tmp") && !policy.Below(g.Path, "/app")
	})
}

// rights returns what a kind of grant allows. What the kernel handles and no
// rule allows is refused: nothing allows make_char, make_block or resolve_unix.
func (k kind) rights() (policy.FS, error) {
	switch k {
	case kindRead:
		return policy.FSRead, nil
	case kindWrite:
		return policy.FSWrite, nil
	case kindReadFile:
		return policy.FSRead & policy.FSOnFile, nil
	case kindWriteFile:
		return policy.FSWrite & policy.FSOnFile, nil
	case kindCode:
		return policy.FSRead | policy.FSExecute, nil
	case kindDevice:
		// Programs ask any file whether it is a terminal, which is an ioctl;
		// these devices have none that harms.
		return policy.FSReadFile | policy.FSWriteFile | policy.FSIoctlDev, nil
	case kindTerminals:
		return policy.FSRead | policy.FSWriteFile | policy.FSIoctlDev, nil
	}
	return 0, fmt.Errorf("kind of grant %q is not known", k)
}

// rules translates the grants and the fitted ports for go-landlock.
func (e *enforcer) rules(fit policy.Ruleset) (rules []landlock.Rule, err error) {
	for _, g := range e.Grants {
		if err := e.known(g); err != nil {
			return nil, err
		}
		rights, err := g.Kind.rights()
		if err != nil {
			return nil, err
		}
		rules = append(rules, landlock.PathAccess(landlock.AccessFSSet(rights&fit.FS), fmt.Sprintf("/proc/self/fd/%d", g.FD)))
	}
	for _, p := range fit.Ports {
		for _, r := range []struct {
			right policy.Net
			rule  func(uint16) landlock.NetRule
		}{
			{policy.NetBindTCP, landlock.BindTCP},
			{policy.NetConnectTCP, landlock.ConnectTCP},
			{policy.NetBindUDP, landlock.BindUDP},
			{policy.NetConnectSendUDP, landlock.ConnectSendUDP},
		} {
			if p.Rights&r.right != 0 {
				rules = append(rules, r.rule(p.Port))
			}
		}
	}
	return rules, nil
}

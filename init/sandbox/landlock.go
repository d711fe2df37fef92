package sandbox

import (
	"fmt"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// Rights on files and folders. A right that the kernel knows and no rule
// grants is refused: nothing grants make_char, make_block or resolve_unix.
const (
	rightsReadFile  = ll.AccessFSReadFile
	rightsRead      = rightsReadFile | ll.AccessFSReadDir
	rightsWriteFile = rightsReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate
	rightsWrite     = rightsRead | rightsWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock |
		ll.AccessFSRefer
	rightsCode = rightsRead | ll.AccessFSExecute
	// Programs ask any file whether it is a terminal, which is an ioctl; these
	// devices have none that harms.
	rightsDevice = rightsReadFile | ll.AccessFSWriteFile | ll.AccessFSIoctlDev
)

func (k kind) rights() (landlock.AccessFSSet, error) {
	switch k {
	case kindRead:
		return rightsRead, nil
	case kindWrite:
		return rightsWrite, nil
	case kindReadFile:
		return rightsReadFile, nil
	case kindWriteFile:
		return rightsWriteFile, nil
	case kindCode:
		return rightsCode, nil
	case kindDevice:
		return rightsDevice, nil
	}
	return 0, fmt.Errorf("kind of grant %q is not known", k)
}

// restrictLandlock puts the thread, and so the app, into a domain of its own.
// go-landlock's Restrict would change all threads, by signals that an ABI 6
// kernel without its second erratum refuses between a domain and the outside.
func restrictLandlock(e *enforcer) (string, error) {
	k, err := kernelLandlock()
	if err != nil {
		return "", err
	}
	fit, err := fitLandlock(k, e.Spec)
	if err != nil {
		return "", err
	}
	rules, err := e.rules(fit.config)
	if err != nil {
		return "", err
	}
	config := fit.config
	if k.abi >= 7 {
		config = config.EnableLoggingForSubprocesses() // an execve would silence the domain
	}
	fd, flags, err := config.NewRulesetFD(rules...)
	if err != nil {
		return "", fmt.Errorf("cannot create ruleset: %w", err)
	}
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return "", fmt.Errorf("cannot restrict: %w", err)
	}
	e.abi = k.abi
	e.Weaker = append(e.Weaker, fit.weaker...)
	return fmt.Sprintf("ABI %d, %d path rules, %d port rules; %s", k.abi, len(e.Grants), len(rules)-len(e.Grants), strings.Join(fit.closed, "; ")), nil
}

// rules returns what the ruleset grants. A right that the kernel's ABI lacks
// can not be granted and is not refused either: fitLandlock answers for that.
func (e *enforcer) rules(c landlock.Config) (rules []landlock.Rule, err error) {
	for _, g := range e.Grants {
		rights, err := g.Kind.rights()
		if err != nil {
			return nil, err
		}
		rules = append(rules, landlock.PathAccess(rights&c.HandledAccessFS, g.Path))
	}
	udp := c.HandledAccessNet&ll.AccessNetConnectSendUDP != 0
	for _, port := range e.policy.Connect {
		rules = append(rules, landlock.ConnectTCP(port))
		if udp {
			rules = append(rules, landlock.ConnectSendUDP(port))
		}
	}
	for _, port := range e.policy.Bind {
		rules = append(rules, landlock.BindTCP(port))
		if udp {
			rules = append(rules, landlock.BindUDP(port))
		}
	}
	if udp && len(e.policy.Connect) > 0 {
		rules = append(rules, landlock.BindUDP(0)) // sending takes a port of its own
	}
	return rules, nil
}

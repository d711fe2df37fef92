// Package seccomp owns the system call profiles as data: for each class of
// app, which calls are allowed, which are refused by name, and what all others
// get. tools/seccompile turns them into filters; init/sandbox loads those.
package seccomp

import (
	"fmt"
	"slices"
	"strings"
)

// Class names a profile. Policies carry it.
type Class string

// The classes.
const (
	Base            Class = "base"             // sockets: AF_UNIX only
	Network         Class = "network"          // also TCP and UDP over IPv4 and IPv6
	Terminal        Class = "terminal"         // as base, and a controlling terminal
	NetworkTerminal Class = "network-terminal" // both
)

// Dir is where the compiled filters lie in the root filesystem.
const Dir = "/lib/berth/seccomp"

// Classes returns every class.
func Classes() []Class { return []Class{Base, Network, Terminal, NetworkTerminal} }

// AllowFile is the name in Dir of the filter that allows what is listed and
// answers ENOSYS to the rest. It is loaded first, without logging.
func (c Class) AllowFile() string { return string(c) + ".bpf" }

// DenyFile is the name in Dir of the filter that answers EPERM to the calls
// that are dangerous by name and allows the rest. It is loaded second, with
// logging; of two filters that both refuse, the kernel takes the later one's
// errno, so a named call is logged and an unknown one is not.
func (c Class) DenyFile() string { return string(c) + ".deny.bpf" }

// NoUnixFile is the name in Dir of a third filter, for kernels whose Landlock
// can not tell an app's own unix sockets from those that somebody else made in
// a granted folder (ABI below 9): it answers EPERM to what can connect to one.
const NoUnixFile = "no-unix.bpf"

// Low is the mask of arguments that the kernel reads as 32 bits: whatever the
// upper half holds, the call acts on the lower one.
const Low = 0xffffffff

// All is the mask of arguments compared in both halves.
const All = ^uint64(0)

// Cond is a condition on one argument: (argument & Mask) == Value, or with Not
// (where Mask must be All) argument != Value.
type Cond struct {
	Arg   uint
	Mask  uint64
	Value uint64
	Not   bool
}

func (c Cond) holds(args [6]uint64) bool {
	return (args[c.Arg]&c.Mask == c.Value) != c.Not
}

// Rule matches a call when all its conditions hold; one without conditions
// always matches. A call may have several rules.
type Rule struct {
	Call  string
	Conds []Cond
}

func (r Rule) matches(call string, args [6]uint64) bool {
	return r.Call == call && !slices.ContainsFunc(r.Conds, func(c Cond) bool { return !c.holds(args) })
}

// Entry is one line of the published list: the uses of calls that get the same
// verdict for the same reason.
type Entry struct {
	Verdict Verdict // Allowed or Refused
	Rules   []Rule
	Why     string
}

// Profile is what one class may call. Allow and Deny are the rules of Entries.
type Profile struct {
	Class   Class
	Entries []Entry
	Allow   []Rule
	Deny    []Rule
}

// Verdict is what happens to a call.
type Verdict string

// The verdicts. Calls of another architecture, x32 included, never get one of
// the first three.
const (
	Allowed Verdict = "allowed"
	Refused Verdict = "EPERM"  // dangerous by name: logged
	Unknown Verdict = "ENOSYS" // not on the list: not logged, callers fall back
	Killed  Verdict = "killed"
)

// Decide is the meaning of a profile. The filters are tested against it.
func (p Profile) Decide(call string, args [6]uint64) Verdict {
	match := func(r Rule) bool { return r.matches(call, args) }
	switch {
	case slices.ContainsFunc(p.Deny, match):
		return Refused
	case slices.ContainsFunc(p.Allow, match):
		return Allowed
	}
	return Unknown
}

// For returns the profile of a class.
func For(class Class) (Profile, error) {
	if !slices.Contains(Classes(), class) {
		return Profile{}, fmt.Errorf("cannot find seccomp class %q: there are %v", class, Classes())
	}
	p := Profile{Class: class, Entries: slices.Concat(allowed(), allowedByArgument(), refused(), refusedByArgument())}
	if class == Network || class == NetworkTerminal {
		p.Entries = append(p.Entries, allowedInternet(), refusedFamilies(afUnix, afInet, afInet6), refusedInternet())
	} else {
		p.Entries = append(p.Entries, refusedFamilies(afUnix))
	}
	if class == Base || class == Network {
		p.Entries = append(p.Entries, refusedTerminal())
	}
	for _, e := range p.Entries {
		if e.Verdict == Allowed {
			p.Allow = append(p.Allow, e.Rules...)
		} else {
			p.Deny = append(p.Deny, e.Rules...)
		}
	}
	return p, nil
}

func allow(why, calls string) Entry  { return Entry{Allowed, always(calls), why} }
func refuse(why, calls string) Entry { return Entry{Refused, always(calls), why} }

// always returns an unconditional rule for each name in a list.
func always(names string) (rules []Rule) {
	for _, name := range strings.Fields(names) {
		rules = append(rules, Rule{Call: name})
	}
	return rules
}

// arg returns rules for one call, one for each value of the low half of one
// argument.
func arg(call string, n uint, values ...uint64) (rules []Rule) {
	for _, v := range values {
		rules = append(rules, Rule{call, []Cond{{Arg: n, Mask: Low, Value: v}}})
	}
	return rules
}

// bits returns rules for one call, one for each bit that may be set.
func bits(call string, n uint, values ...uint64) (rules []Rule) {
	for _, v := range values {
		rules = append(rules, Rule{call, []Cond{{Arg: n, Mask: v, Value: v}}})
	}
	return rules
}

// Recent returns the numbers of calls that libseccomp releases in use do not
// know by name. From 424 on, numbers are the same on every architecture.
func Recent() map[string]int {
	return map[string]int{
		"cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453,
		"futex_wake": 454, "futex_wait": 455, "futex_requeue": 456,
		"statmount": 457, "listmount": 458,
		"lsm_get_self_attr": 459, "lsm_set_self_attr": 460, "lsm_list_modules": 461,
		"mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466,
		"open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469, "listns": 470, "rseq_slice_yield": 471,
	}
}

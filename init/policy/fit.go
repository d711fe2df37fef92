package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Layers says what stands around the app besides Landlock. Each closes some of
// the gaps that older versions of Landlock leave; Fit decides which. The zero
// value is Landlock alone.
type Layers struct {
	Mounts bool // own mount tree: granted folders nodev, /dev holds only null, zero, full, random and urandom (and ptys)
	PID    bool // own pid namespace
	Net    bool // own network namespace that holds nothing but its loopback
	// NoUnix: the app cannot connect to a unix socket by its path, because
	// its seccomp profile refuses socket(AF_UNIX) (socketpair may stay), or
	// because no share can hold a socket that somebody outside listens on.
	NoUnix bool
}

// PathRule allows Rights on Path and everything below it.
type PathRule struct {
	Path   string
	Rights FS
}

// PortRule allows Rights on one port. Port 0 with NetBindUDP is the kernel's
// choice of a free port, which an unbound UDP socket needs before it sends.
type PortRule struct {
	Port   uint16
	Rights Net
}

// Ruleset is a policy fitted to one version of Landlock: everything handled is
// denied but for the rules. The enforcer adds rules for the fixed baseline.
type Ruleset struct {
	ABI     int
	FS      FS
	Net     Net
	Scope   Scope
	Log     bool // ask for records after execve; without it denials leave none
	Paths   []PathRule
	Ports   []PortRule
	Instead []string // gaps of this ABI, each with the layer that closes it
}

// gap is something that Landlock restricts only from one ABI on.
type gap struct {
	since  int
	what   string
	closed bool   // by a layer that is present
	by     string // that layer
	moot   bool   // the policy gives no way to it
}

// gaps is the history seen from the policy's side. What came with ABI 4 or
// before is replaced by nothing: no layer of Berth is meant to stand alone for
// file access or TCP ports.
func gaps(p Policy, have Layers) []gap {
	return []gap{
		{since: 1, what: "file access"},
		{since: 2, what: "rename and link between folders of a write scope", moot: !slices.ContainsFunc(p.Paths, func(g Path) bool { return g.Access == Write })},
		{since: 3, what: "truncation of files"},
		{since: 4, what: "TCP connect and bind"},
		{since: 5, what: "ioctl on devices", closed: have.Mounts, by: "the app's mount tree holds no device that ioctl could harm"},
		{since: 6, what: "abstract unix sockets of other processes", closed: have.Net, by: "abstract names end at the app's network namespace"},
		{since: 6, what: "signals to other processes", closed: have.PID, by: "other processes have no number in the app's pid namespace"},
		{since: 9, what: "unix sockets that others made in a granted folder", closed: have.NoUnix, by: "no socket can be reached by its path", moot: !shares(p)},
		{since: 10, what: "UDP send and bind", closed: have.Net, by: "the app's network namespace holds nothing but its loopback"},
	}
}

// shares reports whether p grants a folder that somebody else can write to.
// /tmp and /app are the app's own.
func shares(p Policy) bool {
	return slices.ContainsFunc(p.Paths, func(g Path) bool { return !Below(g.Path, "/tmp") && !Below(g.Path, "/app") })
}

// Fit turns p into the rules that Landlock version abi can hold. What p needs
// and neither that version nor a layer of have gives is returned as lost, one
// sentence each; a caller that loses anything must not start the app.
func Fit(p Policy, abi int, have Layers) (Ruleset, []string) {
	h := History(abi)
	r := Ruleset{ABI: h.Version, FS: h.FS, Net: h.Net, Scope: h.Scope, Log: h.Log, Paths: []PathRule{}, Ports: []PortRule{}}
	var lost []string
	for _, g := range gaps(p, have) {
		switch {
		case abi >= g.since || g.moot:
		case g.closed:
			r.Instead = append(r.Instead, g.what+": "+g.by)
		default:
			lost = append(lost, fmt.Sprintf("%s: needs Landlock ABI %d, the kernel has %d", g.what, g.since, max(abi, 0)))
		}
	}
	for _, g := range p.Paths {
		rights := FSRead
		if g.Access == Write {
			rights = FSWrite
		}
		r.Paths = append(r.Paths, PathRule{g.Path, rights & h.FS})
	}
	r.Ports = ports(p, h.Net)
	return r, lost
}

func ports(p Policy, handled Net) []PortRule {
	rights := map[uint16]Net{}
	for _, port := range p.Connect {
		rights[port] |= NetConnectTCP | NetConnectSendUDP
		rights[0] |= NetBindUDP
	}
	for _, port := range p.Bind {
		rights[port] |= NetBindTCP | NetBindUDP
	}
	rules := []PortRule{}
	for port, r := range rights {
		if r &= handled; r != 0 {
			rules = append(rules, PortRule{port, r})
		}
	}
	slices.SortFunc(rules, func(a, b PortRule) int { return int(a.Port) - int(b.Port) })
	return rules
}

// Below reports whether name is dir or lies below it. Both are absolute and
// clean; symbolic links are the kernel's business.
func Below(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// Covers returns the grant of p that lets the app read name, or write it: the
// deepest that suffices. Without one it returns the deepest grant that covers
// name at all, for an explanation, and false. The fixed baseline (/app,
// /scratch and so on) is not part of a policy.
func Covers(p Policy, name string, write bool) (Path, bool) {
	if !path.IsAbs(name) {
		return Path{}, false
	}
	name = path.Clean(name)
	var best Path
	found := false
	for _, g := range p.Paths {
		if !Below(name, g.Path) {
			continue
		}
		enough := !write || g.Access == Write
		if enough && !found || enough == found && len(g.Path) > len(best.Path) {
			best, found = g, enough
		}
	}
	return best, found
}

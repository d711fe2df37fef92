// Package denial owns the explanation of a refused call: what was refused, by
// which layer, under which rule, and whether a line of the manifest would
// change it. It explains and never decides; the kernel has decided already.
package denial

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

// Evidence says how the layer that denied is known.
type Evidence string

// A denial is recorded when a kernel record stands behind it, and inferred
// when it follows from the errno and the policy.
const (
	Recorded Evidence = "recorded by the kernel"
	Inferred Evidence = "inferred from the error and the policy"
)

// Share is a folder of the host as the app sees it.
type Share struct {
	Path     string
	Aliases  []string
	ReadOnly bool
	Exclude  []string // names that do not exist for the app
}

// Refusal is a change that the file server of a share refused for the name.
type Refusal struct {
	Path string // as the app would name it
	Op   string
	Why  string // a sentence
}

// Context is what an explanation needs besides the error.
type Context struct {
	Policy   policy.Policy // of the process that was refused
	Worker   string        // which one that is, if not the app's main process
	Digest   string        // hex sha256 of the policy's bytes
	Manifest string        // where the manifest is, for the fix
	Shares   []Share
	Records  Records
	Refused  []Refusal // while the call ran
	// Readlink reads a symbolic link of a share; nil: links are not followed.
	Readlink func(s Share, rel string) (target string, ok bool)
	// HostExecuted reports whether hosts execute what is at a place below a
	// share, so that the share refuses changes there; nil: no place is such.
	HostExecuted func(rel string) bool
	// Excluded reports whether a share's excluded names cover such a place.
	Excluded func(exclude []string, rel string) bool
}

// Denial is one explained refusal. Fix is empty when none exists.
type Denial struct {
	Denied string `json:"denied"`
	By     string `json:"denied_by"`
	Rule   string `json:"rule"`
	Fix    string `json:"fix,omitempty"`
}

// String is the block that people and models read.
func (d Denial) String() string {
	fix := d.Fix
	if fix == "" {
		fix = "none available: " + noFix
	}
	return fmt.Sprintf("BERTH CAPABILITY DENIAL\ndenied: %s\ndenied-by: %s\nrule: %s\nfix: %s\n", d.Denied, d.By, d.Rule, fix)
}

const noFix = "a filesystem scope may only name /workspace, /context, /tmp, /app"

// pathMax is how long a path can be that the kernel looks at (PATH_MAX), in bytes.
const pathMax = 4096

// Explain returns the denial behind e, or false when e is an ordinary failure
// (a missing file, a full disk, a fault of the app), which is not dressed up
// as one.
func Explain(c Context, e protocol.Error) (Denial, bool) {
	switch {
	case e.App != "" && e.App != c.Policy.App:
		return Denial{}, false // of an app that this one called, under another policy
	case e.Code == protocol.CodeDenied:
		return c.invocation(e)
	case e.Code != protocol.CodeSystem:
		return Denial{}, false
	case max(len(e.Path), len(e.NewPath)) > pathMax:
		return Denial{}, false // the kernel has refused it for its length, if at all
	}
	if e.Access != protocol.AccessRead && e.Access != protocol.AccessWrite {
		e.Access = "" // whatever the app calls it
	}
	e = c.about(e)
	for _, special := range []func(protocol.Error) (Denial, bool){c.network, c.byName, c.besideShares, c.terminal} {
		if d, ok := special(e); ok {
			return d, true
		}
	}
	switch e.Errno {
	case "EACCES":
		return c.access(e), true
	case "EROFS":
		return c.readOnly(e), true
	case "EPERM":
		return c.notPermitted(e), true
	case "EXDEV":
		return c.crossDevice(e)
	}
	return Denial{}, false
}

// about picks the path that was refused when a rename or link names two: the
// new one, if the policy does not let the app write there.
func (c Context) about(e protocol.Error) protocol.Error {
	if e.NewPath == "" {
		return e
	}
	e.Access = protocol.AccessWrite
	if g, ok := policy.Covers(c.Policy, c.guestPath(e.NewPath), false); !ok || g.Access != policy.Write {
		e.Path = e.NewPath
	}
	return e
}

// access explains EACCES: Landlock where no rule covers the path, else the
// permissions of the file itself.
func (c Context) access(e protocol.Error) Denial {
	guest := c.guestPath(e.Path)
	d := Denial{Denied: call(e)}
	m, recorded := c.tied(e)
	if recorded && m.place != "" && m.place != guest {
		guest = m.place
		d.Denied += ", which leads to " + quote(guest)
	}
	grant, granted := policy.Covers(c.Policy, guest, false)
	switch {
	case granted && !recorded && (grant.Access == policy.Write || e.Access != protocol.AccessWrite):
		d.By = "the permissions of the file or its folder on the host, or of a place to which a symbolic link on this path leads (" + string(Inferred) + ")"
		d.Rule = fmt.Sprintf("filesystem:%s:%s covers %s itself; the manifest is not what refused", grant.Access, grant.Path, quote(e.Path))
		d.Fix = "the owner of the folder may change its permissions, or the link; retrying will not help"
	case granted && grant.Access == policy.Write:
		d.By = c.landlock(e)
		d.Rule = fmt.Sprintf("filesystem:write:%s covers %s, but no scope carries this right", grant.Path, quote(guest))
		d.Fix = "none available: " + because(m.record)
	case granted:
		d.By = c.landlock(e)
		d.Rule = fmt.Sprintf("filesystem:read:%s covers %s for reading only", grant.Path, quote(guest))
		d.Fix = c.fix(e, policy.Write, guest)
	default:
		d.By = c.landlock(e)
		d.Rule = fmt.Sprintf("no %s capability covers %s", wanted(e), quote(around(guest)))
		d.Fix = c.fix(e, policy.Access(e.Access), guest)
	}
	return d
}

// around is the folder that a place is in; of what lies in the root, itself.
func around(place string) string {
	if dir := path.Dir(place); dir != "/" {
		return dir
	}
	return place
}

// because says why no line allows what a record is about.
func because(r Record) string {
	if n := Needed(r.Blockers, r.Object); n.Because != "" {
		return n.Because
	}
	return "no manifest line allows it"
}

// fix words the fix by the kernel's record, which knows what was wanted, or else
// by what the app says.
func (c Context) fix(e protocol.Error, access policy.Access, guest string) string {
	m, ok := c.tied(e)
	if !ok {
		return c.add(access, guest)
	}
	switch n := Needed(m.record.Blockers, c.guestPath(m.record.Object)); {
	case n.Capability != "":
		return c.mayAdd(strconv.Quote(n.Capability))
	case n.Because == noFix:
		return ""
	default:
		return "none available: " + n.Because
	}
}

// readOnly explains EROFS, which the kernel answers before it asks Landlock.
func (c Context) readOnly(e protocol.Error) Denial {
	guest := c.guestPath(e.Path)
	d := Denial{Denied: call(e)}
	grant, granted := policy.Covers(c.Policy, guest, false)
	share, shared := c.share(guest)
	switch {
	case granted && shared && share.ReadOnly:
		d.By = "the workspace is mounted read-only (EROFS)"
		d.Rule = "this sandbox was started with --workspace DIR:ro"
		d.Fix = "the owner of this sandbox may start it without :ro; retrying will not help"
	case granted && grant.Access == policy.Read:
		d.By = "a read scope is mounted read-only (EROFS)"
		d.Rule = fmt.Sprintf("filesystem:read:%s covers %s for reading only", grant.Path, quote(e.Path))
		d.Fix = c.add(policy.Write, guest)
	case granted:
		d.By = "a read-only place (EROFS), to which a symbolic link on this path leads (" + string(Inferred) + ")"
		d.Rule = fmt.Sprintf("filesystem:%s:%s covers %s, but not what a link on it leads to", grant.Access, grant.Path, quote(e.Path))
		d.Fix = "the owner of the folder may replace the link; retrying will not help"
	default:
		d.By = "the root filesystem is read-only (EROFS)"
		d.Rule = fmt.Sprintf("no filesystem:%s capability covers %s", policy.Write, quote(around(guest)))
		d.Fix = c.add(policy.Write, guest)
	}
	return d
}

// notPermitted explains EPERM: of the system call filter, of Landlock for what
// is no file, or of a capability that an app never has.
func (c Context) notPermitted(e protocol.Error) Denial {
	d := Denial{Denied: call(e), Rule: "no capability grants this operation", Fix: "none available: " + NeededCall(e.Op, c.Policy.Class)}
	m, recorded := c.tied(e)
	switch {
	case recorded && len(m.record.Blockers) > 0:
		d.By = c.landlock(e)
		d.Fix = "none available: " + because(m.record)
	case recorded:
		d.By = fmt.Sprintf("the kernel: system call filter %q of %s, %s, policy sha256 %s", c.Policy.Class, c.who(), c.evidence(e), short(c.Digest))
		d.Rule = fmt.Sprintf("%s is dangerous in this way and refused to every app of class %s", quote(m.record.call()), c.Policy.Class)
	default:
		d.By = fmt.Sprintf("the kernel: system call filter %q or a missing capability of %s, %s, policy sha256 %s", c.Policy.Class, c.who(), c.evidence(e), short(c.Digest))
	}
	return d
}

// who names the app and, if it is none of its main process, the worker.
func (c Context) who() string {
	if c.Worker == "" {
		return fmt.Sprintf("app %q", c.Policy.App)
	}
	return fmt.Sprintf("app %q, worker %q", c.Policy.App, c.Worker)
}

// crossDevice explains EXDEV: a link or rename between two granted folders,
// each a mount of its own. Programs copy instead, so it is no denial there.
func (c Context) crossDevice(e protocol.Error) (Denial, bool) {
	guest := c.guestPath(e.Path)
	if _, granted := policy.Covers(c.Policy, guest, false); granted {
		return Denial{}, false
	}
	return c.access(e), true
}

func (c Context) landlock(e protocol.Error) string {
	return fmt.Sprintf("the kernel: Landlock domain of %s, %s, policy sha256 %s", c.who(), c.evidence(e), short(c.Digest))
}

// add words the fix for a path, or returns "" where no scope may name it. The
// scope is the narrowest folder that would do.
func (c Context) add(access policy.Access, guest string) string {
	folder := path.Dir(guest)
	if guest == "/workspace" || guest == "/tmp" {
		folder = guest
	}
	known := access == policy.Read || access == policy.Write // else the app did not say what for
	if !known {
		access = policy.Read
	}
	n := neededScope(access, folder)
	switch {
	case n.Because == noFix:
		return ""
	case n.Capability == "":
		return "none available: " + n.Because
	case known:
		return c.mayAdd(strconv.Quote(n.Capability))
	}
	return c.mayAdd(fmt.Sprintf("%q, or to write %q,", n.Capability, neededScope(policy.Write, folder).Capability))
}

// mayAdd speaks to the owner of the manifest. What a worker may do is said
// beside its exports, and within what the app may.
func (c Context) mayAdd(lines string) string {
	at := c.Manifest
	if c.Worker != "" {
		at = fmt.Sprintf("the capabilities of export %q (and of the app) in %s", c.Worker, c.Manifest)
	}
	return fmt.Sprintf("the owner of this sandbox may add %s to %s, approve it and start it again; retrying will not help", lines, at)
}

// guestPath turns what the app named into the canonical path below /workspace:
// relative names start there, and a share's alias stands for its path.
func (c Context) guestPath(name string) string {
	if !path.IsAbs(name) {
		name = "/workspace/" + name
	}
	name = path.Clean(name)
	for _, s := range c.Shares {
		for _, alias := range s.Aliases {
			if policy.Below(name, alias) {
				return s.Path + strings.TrimPrefix(name, alias)
			}
		}
	}
	return name
}

func (c Context) share(guest string) (Share, bool) {
	for _, s := range c.Shares {
		if policy.Below(guest, s.Path) {
			return s, true
		}
	}
	return Share{}, false
}

func call(e protocol.Error) string {
	op := e.Op
	if op == "" {
		op = "a system call"
	} else {
		op = quote(op) + "(2)"
	}
	if e.Access == protocol.AccessWrite {
		op += " for writing"
	}
	if e.Path == "" {
		return fmt.Sprintf("%s (%s)", op, e.Errno)
	}
	return fmt.Sprintf("%s on %s (%s)", op, quote(e.Path), e.Errno)
}

func wanted(e protocol.Error) string {
	if e.Access == "" {
		return "filesystem"
	}
	return "filesystem:" + e.Access
}

// quote leaves ordinary paths as they are and makes hostile ones one line.
func quote(p string) string {
	if q := fmt.Sprintf("%q", p); len(q) != len(p)+2 {
		return q
	}
	return p
}

func short(digest string) string {
	if len(digest) <= 12 {
		return digest
	}
	return digest[:12] + "…"
}

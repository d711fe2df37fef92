package sandbox

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/denial"
	"github.com/berthos/berth/host/syscalls"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// LogDenied is the stream of log records about denials.
const LogDenied = "denied"

// lateRecord is how long after a call has ended a record may still be about it.
const lateRecord = time.Second

// Kinds of link.Denied.
const (
	kindLandlock = "landlock"
	kindSeccomp  = "seccomp"
	kindCounts   = "counts"
)

// denied is a record in the host's words, with what the host knows besides.
func (s *Sandbox) denied(r link.DenialRecord) *link.Denied {
	app, worker, _ := strings.Cut(r.App, ".")
	d := &link.Denied{
		Kind: kindCounts, Serial: r.Serial, UnixNano: r.UnixNano, App: app, Worker: worker,
		PID: r.PID, Comm: r.Comm, Exe: r.Exe, Suppressed: r.Suppressed, Lost: r.Lost,
	}
	if r.Exit < 0 {
		d.Errno = unix.ErrnoName(syscall.Errno(-r.Exit))
	}
	if r.PID != 0 {
		d.Syscall = syscalls.Name(r.Arch, r.Syscall)
	}
	switch {
	case len(r.Blockers) > 0 && !r.Canary:
		need := denial.Needed(r.Blockers, s.canonical(r.Path)+r.Object)
		d.Kind, d.Blockers, d.Object = kindLandlock, r.Blockers, r.Path+r.Object
		d.Capability, d.Because = need.Capability, need.Because
	case r.Seccomp && r.PID != 0 && !r.Canary:
		d.Kind, d.Errno, d.Because = kindSeccomp, "EPERM", denial.NeededCall(d.Syscall, s.classOf(r.App))
	default:
		return d
	}
	if r.App != "" {
		d.Calls = s.flights.since(r.App, time.Now().Add(-lateRecord))
	}
	return d
}

// canonical gives the place below /workspace of one that has two names.
func (s *Sandbox) canonical(place string) string {
	for _, share := range s.Shares() {
		for _, alias := range share.Aliases {
			if policy.Below(place, alias) {
				return share.Path + strings.TrimPrefix(place, alias)
			}
		}
	}
	return place
}

// DenialLine is a record on one line, or "" for one that says nothing new: a
// canary, or the end of a domain of which nothing is missing.
func DenialLine(r link.DenialRecord) string {
	var parts []string
	if r.Suppressed > 0 {
		parts = append(parts, fmt.Sprintf("suppressed %d records", r.Suppressed))
	}
	if r.Lost > 0 {
		parts = append(parts, fmt.Sprintf("lost %d records", r.Lost))
	}
	if len(r.Blockers) > 0 && !r.Canary {
		parts = append(parts, deniedWhat(r)+by(r))
	}
	if r.Seccomp && r.PID != 0 && !r.Canary {
		parts = append(parts, syscalls.Name(r.Arch, r.Syscall)+" by the filter"+by(r))
	}
	return strings.Join(parts, "; ")
}

// deniedWhat is the right and the object.
func deniedWhat(r link.DenialRecord) string {
	what := strings.Join(r.Blockers, ",")
	if object := r.Path + r.Object; object != "" {
		what += " on " + object
	}
	return what
}

// by names the process, and of an app with several which one.
func by(r link.DenialRecord) string {
	if r.PID == 0 {
		return ""
	}
	s := fmt.Sprintf(", pid %d (%s)", r.PID, r.Comm)
	if _, worker, ok := strings.Cut(r.App, "."); ok {
		s += fmt.Sprintf(" of worker %q", worker)
	}
	if r.Exit < 0 {
		s += ": " + syscall.Errno(-r.Exit).Error()
	}
	return s
}

// classOf is the class of the filter that a process runs under, "" if it is no
// app's.
func (s *Sandbox) classOf(instance string) string {
	name, worker, _ := strings.Cut(instance, ".")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		if a.policy.App != name {
			continue
		}
		if p, err := a.policy.For(worker); err == nil {
			return p.Class
		}
	}
	return ""
}

package sandbox

import (
	"fmt"
	"strings"
	"sync"

	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/init/link"
)

// Journal writes the audit trail. After an error nothing was recorded.
type Journal interface {
	// Append returns when a record is written, AppendSync when it is on the disk.
	Append(audit.Record) (seq int64, err error)
	AppendSync(audit.Record) (seq int64, err error)
}

// LogAudit is the stream of log records about the trail itself.
const LogAudit = "audit"

// journal keeps the trail of a sandbox. What an app does is not waited for: a
// record about it that cannot be written is counted, and told as soon as the
// trail can be written again. What is asked of an app is not passed on before it
// is in the trail.
type journal struct {
	to  Journal // nil: no trail is kept
	run string

	mu   sync.Mutex // guards what follows
	lost int64      // records that could not be written
}

// ask records what is about to be allowed. An error forbids it.
func (j *journal) ask(r audit.Record) (seq int64, err error) {
	if j.to == nil {
		return 0, nil
	}
	r.Run = j.run
	seq, err = j.to.Append(r)
	if err == nil {
		j.tellLost()
	}
	return seq, err
}

// note records what has happened anyway, and returns why it cannot.
func (j *journal) note(r audit.Record) error {
	if j.to == nil {
		return nil
	}
	r.Run = j.run
	if _, err := j.to.Append(r); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lost++
		return err
	}
	j.tellLost()
	return nil
}

// tellLost records how many records are missing, if any are.
func (j *journal) tellLost() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lost == 0 {
		return
	}
	if _, err := j.to.Append(audit.Record{Kind: audit.KindLoss, Run: j.run, Count: j.lost, Reason: "the trail could not be written"}); err == nil {
		j.lost = 0
	}
}

// begun records that an app may execute, on the disk before it does.
func (s *Sandbox) begun(a *app, e *link.Enforced) error {
	if s.journal.to == nil {
		return nil
	}
	b := s.Booted()
	_, err := s.journal.to.AppendSync(audit.Record{Kind: audit.KindStart, Run: s.journal.run, App: a.name, Bound: &audit.Bound{
		Image: s.o.Image.Digest, Machine: s.o.Machine.Describe(), Version: a.policy.Version, Code: a.policy.Code, Policy: a.digest,
		Guest: audit.Guest{Kernel: b.Kernel, ABI: e.ABI, Steps: e.Steps, Weaker: e.Weaker},
	}})
	return err
}

// happened records an event, if it is one for the trail.
func (s *Sandbox) happened(e Event) {
	if r, ok := recordOf(e); ok {
		s.noteFor(e.App, r)
	}
}

// noteFor records what has happened to an app. A trail that cannot be written
// says so in the log.
func (s *Sandbox) noteFor(app string, r audit.Record) {
	if err := s.journal.note(r); err != nil {
		s.logs.add(link.LogRecord{App: appOf(app), Stream: LogAudit, Line: fmt.Sprintf("not recorded: %v", err)})
	}
}

// recordOf is what the trail says of an event, if it says anything.
func recordOf(e Event) (audit.Record, bool) {
	switch {
	case e.Exited != nil:
		return audit.Record{Kind: audit.KindStop, App: e.App, Reason: e.Exited.Status}, true
	case e.Failed != nil:
		return audit.Record{Kind: audit.KindStop, App: e.App, Decision: audit.Unavailable, Reason: e.Failed.Step + ": " + e.Failed.Reason}, true
	case e.Ended != nil:
		return audit.Record{Kind: audit.KindStop, Reason: e.Ended.Reason}, true
	}
	return audit.Record{}, false
}

// nameRecord is what the trail says of a name that hosts execute.
func nameRecord(n Name) audit.Record {
	d := audit.Allowed
	if n.Refused {
		d = audit.Denied
	}
	return audit.Record{Kind: audit.KindName, Decision: d, Reason: n.String()}
}

// denialRecords are what the trail says of a record of the kernel.
func denialRecords(instance string, d *link.Denied) (list []audit.Record) {
	if d.Kind != kindCounts {
		list = append(list, audit.Record{
			Kind: audit.KindDenial, App: instance, Decision: audit.Denied, Capability: d.Capability, Reason: d.Because,
			Evidence: &audit.Evidence{Kind: d.Kind, Blockers: strings.Join(d.Blockers, ","), Object: d.Object, Syscall: d.Syscall, PID: d.PID, Comm: d.Comm, Serial: d.Serial},
		})
	}
	if d.Suppressed > 0 {
		list = append(list, audit.Record{Kind: audit.KindLoss, App: instance, Count: count(d.Suppressed), Reason: "records of denials were suppressed: a flood"})
	}
	if d.Lost > 0 {
		list = append(list, audit.Record{Kind: audit.KindLoss, App: instance, Count: count(d.Lost), Reason: "records of denials were lost in the guest"})
	}
	return list
}

func count(n uint64) int64 { return int64(min(n, 1<<62)) }

// Actor is who makes a call, and how that is known.
type Actor struct{ Name, By string }

// orSelf is the actor of a call of which nothing else is known: this process
// makes it.
func (a Actor) orSelf() Actor {
	if a.Name == "" {
		return Actor{Name: "the program that started the sandbox", By: "same process"}
	}
	return a
}

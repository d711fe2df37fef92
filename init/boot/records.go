package boot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/berthos/berth/init/audit"
	"github.com/berthos/berth/init/link"
)

// auditor is the kernel's audit socket (audit.Conn).
type auditor interface {
	Next() ([]audit.Event, error)
	Mark(n uint64) error
	AskStatus() error
	Close() error
}

// maxAncestors bounds the way from a process to the supervisor of its app.
const maxAncestors = 64

// records ties what the kernel records to apps, and counts what is missing.
type records struct {
	conn   auditor
	parent func(pid int) int // 0 if the process is gone
	out    *denialQueue

	sending sync.Mutex // one message to the kernel at a time

	mu      sync.Mutex // guards what follows
	runs    map[int]*appRun
	mains   map[int]*appRun // by the process that restricted itself
	domains map[uint64]*domain
	marks   map[uint64]func()
	marked  uint64
	nobody  appRun // what belongs to no run any more, such as of a process that is gone
	lost    uint32 // the kernel's counter
	idle    chan struct{}
}

// appRun is one run of an app, known by its supervisor's process.
type appRun struct {
	app      string
	tied     bool // a domain of it was recorded
	released bool // it may execute: canaries are over
	flow     flow // of seccomp
}

// domain is one domain of Landlock that has not ended.
type domain struct {
	run  *appRun // nil: of nobody that was started
	seen uint64  // denials
	flow flow
}

func (d *domain) app() string {
	if d.run == nil {
		return ""
	}
	return d.run.app
}

// domainName is as in the kernel's own records.
func domainName(id uint64) string { return strconv.FormatUint(id, 16) }

func newRecords(conn auditor, parent func(int) int) *records {
	return &records{
		conn: conn, parent: parent, out: newDenialQueue(),
		runs: map[int]*appRun{}, mains: map[int]*appRun{}, domains: map[uint64]*domain{}, marks: map[uint64]func(){},
	}
}

// startRecords makes this process the kernel's audit daemon.
func (p *pid1) startRecords(context.Context) error {
	conn, err := p.sys.Audit()
	if err != nil {
		return err
	}
	r := newRecords(conn, p.sys.Parent)
	p.records = r
	p.spawn("kernel records", func() { p.end(ending{"kernel records", r.read()}) })
	return nil
}

// openDenials opens the stream on which records go to the host.
func (p *pid1) openDenials(context.Context) error {
	stream, err := p.session.OpenStream(link.StreamHeader{Type: link.StreamDenials})
	if err != nil {
		return err
	}
	p.spawn("denials", func() { p.records.out.send(stream.SendDenial) })
	return nil
}

// read handles events until the socket fails, and returns why. It never waits for the host: who
// causes records waits for it.
func (r *records) read() error {
	for {
		events, err := r.conn.Next()
		for _, e := range events {
			r.event(e)
		}
		switch {
		case errors.Is(err, audit.ErrOverrun):
			err = r.ask()
		case errors.Is(err, audit.ErrUnreadable):
			r.out.always(link.DenialRecord{Lost: 1})
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *records) ask() error {
	r.sending.Lock()
	defer r.sending.Unlock()
	return r.conn.AskStatus()
}

func (r *records) event(e audit.Event) {
	r.mu.Lock()
	done := r.handle(e)
	r.mu.Unlock()
	if done != nil {
		done()
	}
}

// handle takes in one event. mu is held.
func (r *records) handle(e audit.Event) (done func()) {
	switch {
	case e.Mark != 0:
		done = r.marks[e.Mark]
		delete(r.marks, e.Mark)
	case e.Status != nil:
		if n := e.Status.Lost - r.lost; n > 0 {
			r.out.always(link.DenialRecord{Lost: uint64(n)})
		}
		r.lost = e.Status.Lost
	case e.Seccomp:
		r.filtered(e)
	case e.Domain != nil && e.Domain.Ended:
		r.finish(e)
	default:
		r.denied(e)
	}
	return done
}

// denied handles what Landlock denied in one system call.
func (r *records) denied(e audit.Event) {
	if e.Domain != nil {
		r.tie(e.Domain.ID, e)
	}
	for _, a := range e.Accesses {
		d := r.tie(a.Domain, e)
		d.seen++
		rec := record(e, d.run)
		rec.Domain, rec.Blockers = domainName(a.Domain), a.Blockers
		rec.Path, rec.Dev, rec.Ino, rec.Object = a.Path, a.Dev, a.Ino, a.Object
		d.flow.pass(e.Time, rec, r.out)
	}
}

// filtered handles what the system call filter refused.
func (r *records) filtered(e audit.Event) {
	run := r.runOf(e.Process.PID, e.Process.Parent)
	rec := record(e, run)
	rec.Seccomp = true
	if run == nil {
		run = &r.nobody
	}
	run.flow.pass(e.Time, rec, r.out)
}

// record is what all records have.
func record(e audit.Event, run *appRun) link.DenialRecord {
	rec := link.DenialRecord{Serial: e.Serial, UnixNano: e.Time.UnixNano()}
	if run != nil {
		rec.App, rec.Canary = run.app, !run.released
	}
	if p := e.Process; p != nil {
		rec.PID, rec.Comm, rec.Exe, rec.Arch, rec.Syscall, rec.Exit = p.PID, p.Comm, p.Exe, p.Arch, p.Syscall, p.Exit
	}
	return rec
}

// tie returns a domain, tied to its app as soon as a record says who is in it.
func (r *records) tie(id uint64, e audit.Event) *domain {
	d := r.domains[id]
	if d == nil {
		d = &domain{}
		r.domains[id] = d
	}
	if d.run == nil && e.Process != nil {
		d.run = r.runOf(e.Process.PID, e.Process.Parent)
	}
	if d.run != nil {
		d.run.tied = true
	}
	return d
}

// runOf finds the run that a process belongs to. The enforcer is the child of
// its supervisor and becomes the app's first process; of others the ancestors
// are looked up while they live.
func (r *records) runOf(pid, parent int) *appRun {
	if run := r.runs[parent]; run != nil {
		r.mains[pid] = run
		return run
	}
	for range maxAncestors {
		if run := r.mains[pid]; run != nil {
			return run
		}
		if run := r.runs[pid]; run != nil || pid <= 1 {
			return run
		}
		pid = r.parent(pid)
	}
	return nil
}

// finish compares what was seen of a domain with the kernel's own count.
func (r *records) finish(e audit.Event) {
	d := r.domains[e.Domain.ID]
	if d == nil {
		d = &domain{} // none of its denials was seen
	}
	rec := link.DenialRecord{
		App: d.app(), Serial: e.Serial, UnixNano: e.Time.UnixNano(), Domain: domainName(e.Domain.ID),
		Ended: true, Denials: e.Domain.Denials, Suppressed: d.flow.suppressed,
	}
	if e.Domain.Denials > d.seen {
		rec.Lost = e.Domain.Denials - d.seen
	}
	r.out.always(rec)
	delete(r.domains, e.Domain.ID)
	if r.idle != nil && len(r.domains) == 0 {
		close(r.idle)
		r.idle = nil
	}
}

// started makes the records of a new supervisor's descendants those of app.
func (r *records) started(pid int, app string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[pid] = &appRun{app: app}
}

// ended forgets a run. Its domains live until the kernel says that they ended.
func (r *records) ended(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.runs[pid]
	delete(r.runs, pid)
	for main, of := range r.mains {
		if of == run {
			delete(r.mains, main)
		}
	}
}

// confirm waits until everything that the enforcer under this supervisor was
// denied has been recorded, which ends its canaries, and fails if that is
// nothing: denials of the app would not be recorded either.
func (r *records) confirm(ctx context.Context, pid int, required bool) error {
	var run *appRun
	err := r.settled(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if run = r.runs[pid]; run != nil {
			run.released = true
		}
	})
	if err != nil {
		return err
	}
	if required && (run == nil || !run.tied) {
		return errors.New("the kernel has recorded none of the canaries' denials")
	}
	return nil
}

// settled waits until everything that was recorded before has been handled.
func (r *records) settled(ctx context.Context, then func()) error {
	done := make(chan struct{})
	err := r.mark(func() {
		then()
		close(done)
	})
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waited for the kernel's records: %w", context.Cause(ctx))
	}
}

// mark has f called once everything that was recorded before has been handled.
func (r *records) mark(f func()) error {
	r.mu.Lock()
	r.marked++
	n := r.marked
	r.marks[n] = f
	r.mu.Unlock()
	r.sending.Lock()
	defer r.sending.Unlock()
	return r.conn.Mark(n)
}

// sync tells the host when it has every record of before, and the counts of
// those that it does not get.
func (r *records) sync(n int64) error {
	if err := r.ask(); err != nil {
		return err
	}
	return r.mark(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for id, d := range r.domains {
			d.flow.tell(link.DenialRecord{App: d.app(), Domain: domainName(id)}, r.out)
		}
		r.nobody.flow.tell(link.DenialRecord{Seccomp: true}, r.out)
		for _, run := range r.runs {
			run.flow.tell(link.DenialRecord{App: run.app, Seccomp: true}, r.out)
		}
		r.out.always(link.DenialRecord{Sync: n})
	})
}

// drain waits, when no app is left, for the last records of all domains, and
// until the host has them.
func (r *records) drain(ctx context.Context) {
	_ = r.settled(ctx, func() {})
	r.mu.Lock()
	idle := make(chan struct{})
	if len(r.domains) == 0 {
		close(idle)
	} else {
		r.idle = idle
	}
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	r.out.flush(ctx)
}

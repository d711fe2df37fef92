package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthos/berth/host/syscalls"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// keptDenials is how many records of an app are kept for who asks.
const keptDenials = 512

// denials keeps the last records of each app, and when they came.
type denials struct {
	mu      sync.Mutex // guards what follows
	open    bool       // the guest sends records
	kept    map[string][]arrived
	synced  int64         // number of the last answered question
	asked   int64         // number of the last question
	changed chan struct{} // closed and renewed with synced, and when the stream ends
}

type arrived struct {
	at  time.Time
	rec link.DenialRecord
}

func newDenials() *denials {
	return &denials{kept: map[string][]arrived{}, changed: make(chan struct{})}
}

// Denials is what the kernel recorded of an app, or of one of its processes.
type Denials struct {
	// Kept says whether this machine reads the kernel's records at all.
	Kept bool
	// Complete says that the guest has confirmed that every record of until now
	// is here, but for those that are counted as suppressed or lost.
	Complete bool
	// Records that came since the given time, canaries left out.
	Records []link.DenialRecord
	// Calls were in flight between that time and now.
	Calls int
}

// Missing counts the records that were suppressed or lost.
func (d Denials) Missing() (n uint64) {
	for _, r := range d.Records {
		n += r.Suppressed + r.Lost
	}
	return n
}

// Find returns the record of a denial by Landlock: the right that was missing
// ("fs.make_reg") and the object, which for a create is the folder.
func (d Denials) Find(blocker, object string) (link.DenialRecord, bool) {
	for _, r := range d.Records {
		if slices.Contains(r.Blockers, blocker) && r.Path+r.Object == object {
			return r, true
		}
	}
	return link.DenialRecord{}, false
}

// FindCall returns the record of a system call that the filter refused, by name.
func (d Denials) FindCall(name string) (link.DenialRecord, bool) {
	for _, r := range d.Records {
		if r.Seccomp && r.PID != 0 && syscalls.Name(r.Arch, r.Syscall) == name {
			return r, true
		}
	}
	return link.DenialRecord{}, false
}

// Denials returns what was recorded since a time of this host's clock. It waits
// until the guest has sent everything of before now, or ctx ends. The name is
// that of an app, for all its processes, or of one of them (policy.Instance).
func (s *Sandbox) Denials(ctx context.Context, name string, since time.Time) (Denials, error) {
	if !s.runs(name) {
		if _, err := s.find(name, ""); err != nil {
			return Denials{}, err
		}
	}
	d := s.denials
	out := Denials{Calls: s.flights.since(name, since)}
	d.mu.Lock()
	out.Kept = d.open
	d.mu.Unlock()
	if !out.Kept {
		return out, nil
	}
	out.Complete = s.syncDenials(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	for of, list := range d.kept {
		for _, a := range list {
			// What is nobody's and missing may have been this app's.
			mine := of == name || appOf(of) == name || of == "" && a.rec.Lost > 0 && !a.rec.Ended
			if mine && !a.at.Before(since) && !a.rec.Canary {
				out.Records = append(out.Records, a.rec)
			}
		}
	}
	slices.SortStableFunc(out.Records, func(a, b link.DenialRecord) int { return cmp.Compare(a.Serial, b.Serial) })
	return out, nil
}

// appOf returns the app of a process (policy.Instance).
func appOf(instance string) string {
	app, _, _ := strings.Cut(instance, ".")
	return app
}

// runs reports whether a name is that of an app or of one of its processes.
func (s *Sandbox) runs(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		for _, worker := range a.policy.Processes() {
			if name == a.policy.App || name == policy.Instance(a.policy.App, worker) {
				return true
			}
		}
	}
	return false
}

// syncDenials asks the guest for what it still holds.
func (s *Sandbox) syncDenials(ctx context.Context) bool {
	d := s.denials
	d.mu.Lock()
	d.asked++
	n := d.asked
	d.mu.Unlock()
	if s.send(link.Control{Sync: &link.Ping{N: n}}) != nil {
		return false
	}
	for {
		d.mu.Lock()
		synced, open, changed := d.synced, d.open, d.changed
		d.mu.Unlock()
		if synced >= n || !open {
			return synced >= n
		}
		select {
		case <-changed:
		case <-s.ended:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// readDenials takes records from the guest until its stream ends.
func (s *Sandbox) readDenials(stream *link.Stream) {
	defer stream.Close()
	s.denials.change(func(d *denials) { d.open = true })
	defer s.denials.change(func(d *denials) { d.open = false })
	for {
		r, err := stream.ReceiveDenial()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.log.Debug("denial stream ended", "error", err)
			}
			return
		}
		if r.Sync != 0 {
			s.denials.change(func(d *denials) { d.synced = max(d.synced, r.Sync) })
			continue
		}
		s.keepDenial(r)
	}
}

func (d *denials) change(f func(*denials)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
	close(d.changed)
	d.changed = make(chan struct{})
}

// keepDenial keeps a record and prints it to the log. What the guest says of a
// process that does not exist is kept as nobody's.
func (s *Sandbox) keepDenial(r link.DenialRecord) {
	if !s.runs(r.App) {
		r.App = ""
	}
	d := s.denials
	d.mu.Lock()
	list := append(d.kept[r.App], arrived{time.Now(), r})
	d.kept[r.App] = list[max(0, len(list)-keptDenials):]
	d.mu.Unlock()
	s.emit(Event{App: appOf(r.App), Denied: &r})
	if line := DenialLine(r); line != "" {
		known := s.denied(r)
		s.logs.add(link.LogRecord{App: appOf(r.App), Stream: LogDenied, Line: line, Denied: known})
		for _, entry := range denialRecords(r.App, known) {
			s.noteFor(r.App, entry)
		}
	}
}

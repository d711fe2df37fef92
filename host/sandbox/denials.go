package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthos/berth/init/link"
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

// Denials is what the kernel recorded of an app.
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

// Denials returns what was recorded of an app since a time of this host's
// clock. It waits until the guest has sent everything of before now, or ctx ends.
func (s *Sandbox) Denials(ctx context.Context, app string, since time.Time) (Denials, error) {
	if _, err := s.find(app); err != nil {
		return Denials{}, err
	}
	d := s.denials
	out := Denials{Calls: s.flights.since(app, since)}
	d.mu.Lock()
	out.Kept = d.open
	d.mu.Unlock()
	if !out.Kept {
		return out, nil
	}
	out.Complete = s.syncDenials(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.kept[app] {
		if !a.at.Before(since) && !a.rec.Canary {
			out.Records = append(out.Records, a.rec)
		}
	}
	for _, a := range d.kept[""] { // what is missing may have been this app's
		if !a.at.Before(since) && a.rec.Lost > 0 && !a.rec.Ended {
			out.Records = append(out.Records, a.rec)
		}
	}
	return out, nil
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

// keepDenial keeps a record and prints it to the log. What the guest says of an
// app that does not exist is kept as nobody's.
func (s *Sandbox) keepDenial(r link.DenialRecord) {
	s.mu.Lock()
	if s.apps[r.App] == nil {
		r.App = ""
	}
	s.mu.Unlock()
	d := s.denials
	d.mu.Lock()
	list := append(d.kept[r.App], arrived{time.Now(), r})
	d.kept[r.App] = list[max(0, len(list)-keptDenials):]
	d.mu.Unlock()
	s.emit(Event{App: r.App, Denied: &r})
	if line := DenialLine(r); line != "" {
		s.logs.add(link.LogRecord{App: r.App, Stream: "denied", Line: line})
	}
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
		parts = append(parts, fmt.Sprintf("system call %d by the filter", r.Syscall)+by(r))
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

func by(r link.DenialRecord) string {
	if r.PID == 0 {
		return ""
	}
	s := fmt.Sprintf(", pid %d (%s)", r.PID, r.Comm)
	if r.Exit < 0 {
		s += ": " + syscall.Errno(-r.Exit).Error()
	}
	return s
}

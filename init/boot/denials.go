package boot

import (
	"time"

	"github.com/berthos/berth/init/link"
)

// Limits of the records that go to the host: of a domain at once, after that
// each second, and how many of an app may wait for a host that is slow. What
// exceeds them is counted.
const (
	floodBurst   = 256
	floodRate    = 64
	queueRecords = 1024
	queueBytes   = 1 << 20
)

// flow limits the records of one domain.
type flow struct {
	used       float64 // of floodBurst
	last       time.Time
	suppressed uint64 // since the last record that was sent
}

// pass sends a record or counts it. Time is that of the records.
func (f *flow) pass(now time.Time, rec link.DenialRecord, out *denialQueue) {
	if since := now.Sub(f.last).Seconds(); since > 0 {
		f.used = max(0, f.used-since*floodRate)
	}
	f.last = now
	rec.Suppressed = f.suppressed
	if f.used+1 > floodBurst || !out.add(rec) {
		f.suppressed++
		return
	}
	f.used++
	f.suppressed = 0
}

// tell sends the count of suppressed records by itself.
func (f *flow) tell(rec link.DenialRecord, out *denialQueue) {
	if rec.Suppressed = f.suppressed; f.suppressed > 0 {
		out.always(rec)
		f.suppressed = 0
	}
}

// denialQueue holds the records that wait for the host, in their order. What an
// app may have waiting is limited for each, so that none pushes out another's.
type denialQueue struct {
	outbox[link.DenialRecord]

	waiting []link.DenialRecord // mu guards these
	held    map[string]load     // of each app, in waiting
}

// load is how much of a queue is an app's.
type load struct{ records, bytes int }

func newDenialQueue() *denialQueue {
	q := &denialQueue{held: map[string]load{}}
	q.outbox = newOutbox(q.first)
	return q
}

// sizeOf is about what a record takes.
func sizeOf(r link.DenialRecord) int { return 256 + len(r.Path) + len(r.Object) + len(r.Exe) }

// add queues a record unless too many of its app wait.
func (q *denialQueue) add(r link.DenialRecord) (ok bool) {
	q.change(func() {
		l := q.held[r.App]
		if ok = l.records < queueRecords && l.bytes < queueBytes; ok {
			q.push(r)
		}
	})
	return ok
}

// always queues what counts others: there is no more of it than domains and
// questions.
func (q *denialQueue) always(r link.DenialRecord) { q.change(func() { q.push(r) }) }

// push queues a record. mu is held.
func (q *denialQueue) push(r link.DenialRecord) {
	l := q.held[r.App]
	q.held[r.App] = load{l.records + 1, l.bytes + sizeOf(r)}
	q.waiting = append(q.waiting, r)
}

// first takes the oldest record. mu is held.
func (q *denialQueue) first() (link.DenialRecord, bool) {
	if len(q.waiting) == 0 {
		q.waiting = nil // gives the array back
		return link.DenialRecord{}, false
	}
	r := q.waiting[0]
	q.waiting = q.waiting[1:]
	l := q.held[r.App]
	if l = (load{l.records - 1, l.bytes - sizeOf(r)}); l.records > 0 {
		q.held[r.App] = l
	} else {
		delete(q.held, r.App)
	}
	return r, true
}

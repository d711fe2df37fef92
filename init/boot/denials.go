package boot

import (
	"context"
	"sync"
	"time"

	"github.com/berthos/berth/init/link"
)

// Limits of the records that go to the host: at once, after that each second,
// and how many may wait for a host that is slow. What exceeds them is counted.
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

// denialQueue holds the records that wait for the host.
type denialQueue struct {
	mu      sync.Mutex // guards what follows
	waiting []link.DenialRecord
	bytes   int
	gone    bool            // nobody reads any more
	empty   []chan struct{} // closed once nothing waits

	pending chan struct{}
}

func newDenialQueue() *denialQueue { return &denialQueue{pending: make(chan struct{}, 1)} }

// sizeOf is about what a record takes.
func sizeOf(r link.DenialRecord) int { return 256 + len(r.Path) + len(r.Exe) }

// add queues a record unless too many wait.
func (q *denialQueue) add(r link.DenialRecord) bool {
	q.mu.Lock()
	full := len(q.waiting) >= queueRecords || q.bytes >= queueBytes
	if !full {
		q.push(r)
	}
	q.mu.Unlock()
	q.poke()
	return !full
}

// always queues what counts others: there is no more of it than domains and
// questions.
func (q *denialQueue) always(r link.DenialRecord) {
	q.mu.Lock()
	q.push(r)
	q.mu.Unlock()
	q.poke()
}

func (q *denialQueue) push(r link.DenialRecord) {
	q.waiting = append(q.waiting, r)
	q.bytes += sizeOf(r)
}

func (q *denialQueue) take() (link.DenialRecord, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.wake(false)
		return link.DenialRecord{}, false
	}
	r := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.bytes -= sizeOf(r)
	return r, true
}

// copyTo sends records until the host is gone.
func (q *denialQueue) copyTo(to interface {
	SendDenial(link.DenialRecord) error
}) {
	for {
		r, ok := q.take()
		if !ok {
			<-q.pending
			continue
		}
		if to.SendDenial(r) != nil {
			q.mu.Lock()
			q.wake(true)
			q.mu.Unlock()
			return
		}
	}
}

// wake tells those who flush that nothing waits any more. mu is held.
func (q *denialQueue) wake(gone bool) {
	q.gone = q.gone || gone
	for _, w := range q.empty {
		close(w)
	}
	q.empty = nil
}

// flush waits until every record was sent, or nobody reads.
func (q *denialQueue) flush(ctx context.Context) {
	q.mu.Lock()
	done := make(chan struct{})
	if q.gone {
		close(done)
	} else {
		q.empty = append(q.empty, done)
	}
	q.mu.Unlock()
	q.poke()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (q *denialQueue) poke() {
	select {
	case q.pending <- struct{}{}:
	default:
	}
}

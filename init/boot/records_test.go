package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/berthos/berth/init/audit"
	"github.com/berthos/berth/init/link"
)

// fakeAudit is an audit socket whose events a test makes. A mark comes back
// behind them.
type fakeAudit struct {
	events chan audit.Event
	errs   chan error // returned before events
}

func newFakeAudit() *fakeAudit {
	return &fakeAudit{events: make(chan audit.Event, 1024), errs: make(chan error, 1)}
}

func (f *fakeAudit) Next() ([]audit.Event, error) {
	select {
	case err := <-f.errs:
		return nil, err
	case e := <-f.events:
		return []audit.Event{e}, nil
	}
}

func (f *fakeAudit) Mark(n uint64) error {
	f.events <- audit.Event{Mark: n}
	return nil
}

func (f *fakeAudit) AskStatus() error {
	f.events <- audit.Event{Status: &audit.Status{Lost: 7}}
	return nil
}

func (f *fakeAudit) Close() error { return nil }

// recording is a records whose processes are 1, the supervisor 10, the app 11,
// its child 12 and grandchild 13; 90 is nobody's.
func recording(t *testing.T) (*records, *fakeAudit) {
	t.Helper()
	f := newFakeAudit()
	r := newRecords(f, func(pid int) int { return map[int]int{11: 10, 12: 11, 13: 12, 90: 1, 10: 1}[pid] })
	r.started(10, "a")
	return r, f
}

var clock = time.Unix(1_800_000_000, 0)

func denial(domain uint64, pid, parent int) audit.Event {
	return audit.Event{
		Time: clock, Accesses: []audit.Access{{Domain: domain, Blockers: []string{"fs.make_reg"}, Path: "/tmp"}},
		Process: &audit.Process{PID: pid, Parent: parent, Exit: -13},
	}
}

func sent(r *records) (all []link.DenialRecord) {
	for {
		rec, ok := r.out.take()
		if !ok {
			return all
		}
		all = append(all, rec)
	}
}

func TestRecordsAreTiedToApps(t *testing.T) {
	r, _ := recording(t)
	r.event(denial(1, 11, 10)) // the enforcer's canary
	r.mu.Lock()
	r.runs[10].released = true
	r.mu.Unlock()
	for _, e := range []audit.Event{
		denial(1, 13, 12), // a grandchild, in the same domain
		denial(2, 12, 11), // a nested domain
		denial(3, 90, 1),  // nobody's
		{Time: clock, Seccomp: true, Process: &audit.Process{PID: 11, Syscall: 272}},
		{Time: clock, Seccomp: true, Process: &audit.Process{PID: 13, Syscall: 272}},
		{Time: clock, Seccomp: true, Process: &audit.Process{PID: 500, Syscall: 272}}, // gone already
	} {
		r.event(e)
	}
	var got []string
	for _, rec := range sent(r) {
		got = append(got, fmt.Sprintf("%s%s/%d/%v", rec.App, rec.Domain, rec.PID, rec.Canary))
	}
	want := []string{"a1/11/true", "a1/13/false", "a2/12/false", "3/90/false", "a/11/false", "a/13/false", "/500/false"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestEveryDenialIsAccountedFor: sent, suppressed or lost.
func TestEveryDenialIsAccountedFor(t *testing.T) {
	r, _ := recording(t)
	const seen, lost = 5000, 8
	for range seen {
		r.event(denial(1, 11, 10))
	}
	later := denial(1, 11, 10)
	later.Time = clock.Add(time.Second)
	r.event(later)
	r.event(audit.Event{Time: clock, Domain: &audit.Domain{ID: 1, Ended: true, Denials: seen + 1 + lost}})
	var count, suppressed uint64
	var end link.DenialRecord
	for _, rec := range sent(r) {
		suppressed += rec.Suppressed
		if end = rec; !rec.Ended {
			count++
		}
	}
	if count != floodBurst+1 || suppressed != seen-floodBurst || !end.Ended || end.Lost != lost || end.App != "a" {
		t.Errorf("sent %d, suppressed %d, end %+v", count, suppressed, end)
	}
	if len(r.domains) != 0 {
		t.Error("the domain is not forgotten")
	}
}

// TestSlowHost has records wait for a host that does not read.
func TestSlowHost(t *testing.T) {
	r, _ := recording(t)
	for i := range 2 * queueRecords {
		e := denial(1, 11, 10)
		e.Time = clock.Add(time.Duration(i) * time.Second) // no flood
		r.event(e)
	}
	if n := len(r.out.waiting); n != queueRecords {
		t.Errorf("%d wait", n)
	}
	if n := r.domains[1].flow.suppressed; n != queueRecords {
		t.Errorf("%d are counted", n)
	}
}

func TestSyncTellsWhatIsMissing(t *testing.T) {
	r, f := recording(t)
	for range floodBurst + 5 {
		r.event(denial(1, 11, 10))
	}
	if err := r.sync(9); err != nil {
		t.Fatal(err)
	}
	f.errs <- audit.ErrUnreadable
	go func() { _ = r.read() }()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := r.settled(ctx, func() {}); err != nil {
		t.Fatal(err)
	}
	all := sent(r)[floodBurst:]
	slices.SortFunc(all, func(a, b link.DenialRecord) int { return int(a.Sync - b.Sync) })
	var lost, suppressed uint64
	for _, rec := range all {
		lost += rec.Lost
		suppressed += rec.Suppressed
	}
	if lost != 8 || suppressed != 5 || all[len(all)-1].Sync != 9 {
		t.Errorf("%+v", all)
	}
}

// overrun is an audit socket whose buffer is found full twice. It answers
// questions, and then fails.
type overrun struct {
	fakeAudit
	full, asked int
}

func (o *overrun) AskStatus() error { o.asked++; return nil }

func (o *overrun) Next() ([]audit.Event, error) {
	switch {
	case o.asked > 0:
		o.asked--
		return []audit.Event{{Status: &audit.Status{Lost: 7}}}, nil
	case o.full < 2:
		o.full++
		return nil, audit.ErrOverrun
	}
	return nil, io.ErrUnexpectedEOF
}

// TestOverrun: a full buffer is no loss by itself. The kernel is asked for its
// counter, and what that has gained since is told, once.
func TestOverrun(t *testing.T) {
	o := &overrun{}
	r := newRecords(o, func(int) int { return 0 })
	if err := r.read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if all := sent(r); len(all) != 1 || all[0].Lost != 7 {
		t.Errorf("%+v", all)
	}
}

// TestConfirm lets no app go whose canaries the kernel has not recorded.
func TestConfirm(t *testing.T) {
	r, f := recording(t)
	go func() { _ = r.read() }()
	if err := r.confirm(t.Context(), 10, true); err == nil {
		t.Error("confirmed without a record")
	}
	if err := r.confirm(t.Context(), 10, false); err != nil {
		t.Errorf("an image without canaries: %v", err)
	}
	f.events <- denial(1, 11, 10)
	if err := r.confirm(t.Context(), 10, true); err != nil {
		t.Error(err)
	}
	f.events <- denial(1, 11, 10)
	if err := r.settled(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	if all := sent(r); all[len(all)-1].Canary {
		t.Error("a canary after the release")
	}
}

func TestLostSocketEndsTheSandbox(t *testing.T) {
	r, f := recording(t)
	broken := errors.New("broken on purpose")
	f.errs <- broken
	if err := r.read(); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestFloodLeavesRoomForOthers has one app's records wait in any number, and
// what belongs to nobody flood too.
func TestFloodLeavesRoomForOthers(t *testing.T) {
	r, _ := recording(t)
	r.started(20, "b")
	for i := range 2 * queueRecords {
		e := denial(1, 11, 10)
		e.Time = clock.Add(time.Duration(i) * time.Second) // no flood, but nobody reads
		r.event(e)
		r.event(audit.Event{Time: clock, Seccomp: true, Process: &audit.Process{PID: 500, Syscall: 272}})
	}
	r.event(denial(2, 21, 20))
	count := map[string]int{}
	for _, rec := range sent(r) {
		count[rec.App]++
	}
	if count["a"] != queueRecords || count["b"] != 1 || count[""] != floodBurst {
		t.Errorf("%v", count)
	}
	if err := r.sync(1); err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.read() }()
	if err := r.settled(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	suppressed := map[string]uint64{}
	for _, rec := range sent(r) {
		suppressed[rec.App] += rec.Suppressed
	}
	if suppressed["a"] != queueRecords || suppressed[""] != 2*queueRecords-floodBurst || suppressed["b"] != 0 {
		t.Errorf("suppressed %v", suppressed)
	}
}

package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
)

// denials asks for the records of what f does.
func (r *running) denials(f func()) sandbox.Denials {
	r.t.Helper()
	since := time.Now()
	f()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	d, err := r.Denials(ctx, "probe", since)
	must(r.t, err)
	return d
}

// deny has the app be refused, which it keeps to itself, and returns the records.
func (r *running) deny(in obj, times string) sandbox.Denials {
	r.t.Helper()
	return r.denials(func() {
		got, err := r.call("deny", in)
		must(r.t, err)
		if got != times {
			r.t.Errorf("%v was refused %s times, want %s", in, got, times)
		}
	})
}

// TestDenials has an app be refused in every way in which a process does
// things. What it does with the error does not matter: the kernel recorded it.
func TestDenials(t *testing.T) {
	r := emulated(t).mustStart(t, nil)
	for _, c := range []struct {
		name string
		in   obj
		want link.DenialRecord
	}{
		{"a create", obj{"path": "/tmp/x"}, link.DenialRecord{Blockers: []string{"fs.make_reg"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"of another thread", obj{"path": "/tmp/x", "how": "thread"}, link.DenialRecord{Blockers: []string{"fs.make_reg"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"of a grandchild after exec", obj{"path": "/tmp/x", "how": "grandchild"}, link.DenialRecord{Blockers: []string{"fs.make_reg"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a truncation", obj{"path": "/run/canary/canary", "how": "truncate"}, link.DenialRecord{Blockers: []string{"fs.truncate"}, Path: "/run/canary/canary", Exit: -13, Comm: "probe"}},
		{"a system call", obj{"how": "unshare"}, link.DenialRecord{Seccomp: true, Syscall: 272, Comm: "probe"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := r.deny(c.in, "1")
			if !d.Kept || !d.Complete || d.Calls != 1 || len(d.Records) != 1 {
				t.Fatalf("%+v, want one record of one call", d)
			}
			got := d.Records[0]
			if got.App != "probe" || got.Canary || got.PID == 0 || got.Serial == 0 || got.Exe != "/app/probe" {
				t.Errorf("%+v", got)
			}
			if !slices.Equal(got.Blockers, c.want.Blockers) || got.Path != c.want.Path || got.Object != c.want.Object || got.Exit != c.want.Exit || got.Comm != c.want.Comm || got.Seccomp != c.want.Seccomp || c.want.Syscall != 0 && got.Syscall != c.want.Syscall {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
		})
	}
	t.Run("what is allowed leaves none", func(t *testing.T) {
		d := r.denials(func() {
			_, err := r.call("write", obj{"path": "/workspace/x", "content": "x"})
			must(t, err)
		})
		if !d.Complete || len(d.Records) != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("beside another call", func(t *testing.T) {
		r.pending(t)
		if d := r.deny(obj{"path": "/tmp/x"}, "1"); d.Calls != 2 || len(d.Records) != 1 {
			t.Errorf("%d calls in flight, want 2: %+v", d.Calls, d.Records)
		}
	})
	t.Run("a flood is counted", func(t *testing.T) { testFlood(t, r) })
}

// testFlood compares what came with the kernel's own count of the domain.
func testFlood(t *testing.T, r *running) {
	const flood = 5000
	r.deny(obj{"path": "/tmp/x", "times": flood}, "5000")
	must(t, r.Replace(t.Context(), emulated(t).probe(t, "", nil)))
	sent, suppressed, end := map[string]uint64{}, map[string]uint64{}, link.DenialRecord{}
	r.until(t, func(e sandbox.Event) bool {
		d := e.Denied
		if d == nil || d.Domain == "" {
			return false
		}
		suppressed[d.Domain] += d.Suppressed
		if len(d.Blockers) > 0 {
			sent[d.Domain]++
		}
		end = *d
		return d.Ended
	})
	t.Logf("sent %d, suppressed %d, lost %d of %d", sent[end.Domain], suppressed[end.Domain], end.Lost, end.Denials)
	if end.App != "probe" || end.Denials < flood || sent[end.Domain]+suppressed[end.Domain]+end.Lost != end.Denials {
		t.Errorf("the end of the domain: %+v", end)
	}
	if sent[end.Domain] == 0 || suppressed[end.Domain] == 0 {
		t.Error("a flood is partly sent and partly counted")
	}
}

// until waits for an event, beginning with the first one.
func (r *running) until(t *testing.T, want func(sandbox.Event) bool) {
	t.Helper()
	next := 0
	for {
		r.mu.Lock()
		events, more := r.events[next:], r.more
		r.mu.Unlock()
		for _, e := range events {
			next++
			if want(e) {
				return
			}
		}
		select {
		case <-more:
		case <-time.After(time.Minute):
			t.Fatal("it did not come")
		}
	}
}

// TestDenialsAreNotKept is the machine that leaves the host's auditing alone.
func TestDenialsAreNotKept(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		if w.machine(nil).Name() != machine.Native {
			return // a VM keeps them: TestDenials
		}
		r := w.mustStart(t, nil)
		if d := r.deny(obj{"path": "/tmp/x"}, "1"); d.Kept || len(d.Records) > 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestGuestFloodsDenials has a guest send more records than are kept, of an app
// that does not exist, and no answer to the question whether that was all.
func TestGuestFloodsDenials(t *testing.T) {
	sent := make(chan error, 1)
	s, err := startFake(t, func(g *fakeGuest) {
		if g.boot() != nil {
			return
		}
		g.serve(func(m link.Control) []link.Control {
			switch {
			case m.Start != nil:
				return []link.Control{{Enforced: enforced(m.Start)}}
			case m.Go != nil:
				stream, err := g.session.OpenStream(link.StreamHeader{Type: link.StreamDenials})
				for i := range 5000 {
					if err == nil {
						err = stream.SendDenial(link.DenialRecord{App: []string{"probe", "other"}[i%2], Serial: uint64(i), Blockers: []string{"fs.make_reg"}})
					}
				}
				if err == nil {
					err = stream.SendDenial(link.DenialRecord{Sync: 1}) // answers the first question before it was asked
				}
				sent <- err
				return []link.Control{{Ready: &link.Ready{App: "probe", Announce: announce("read")}}}
			}
			return nil
		})
	})
	must(t, err)
	must(t, <-sent)
	all, err := s.Denials(t.Context(), "probe", time.Time{})
	must(t, err)
	if n := len(all.Records); n == 0 || n > 512 || all.Records[n-1].Serial != 4998 {
		t.Errorf("%d records are kept", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := s.Denials(ctx, "probe", time.Time{}); err != nil || d.Complete || !d.Kept {
		t.Errorf("Complete without an answer: %v, %v", d.Complete, err)
	}
	if _, err := s.Denials(t.Context(), "other", time.Time{}); err == nil {
		t.Error("denials of an app that does not run")
	}
}

package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
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
	t.Run("a start leaves none", func(t *testing.T) { testStart(t, r) })
	for _, c := range []struct {
		name string
		in   obj
		want link.DenialRecord
	}{
		{"a create", obj{"path": "/tmp/x"}, link.DenialRecord{Blockers: []string{"fs.make_reg"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"of another thread", obj{"path": "/tmp/x", "how": "thread"}, link.DenialRecord{Blockers: []string{"fs.make_reg"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"of a grandchild after exec", obj{"path": "/tmp/x", "how": "grandchild"}, link.DenialRecord{Blockers: []string{"fs.make_reg"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a truncation", obj{"path": "/run/canary/canary", "how": "truncate"}, link.DenialRecord{Blockers: []string{"fs.truncate"}, Path: "/run/canary/canary", Exit: -13, Comm: "probe"}},
		{"a read", obj{"path": "/run/canary/canary", "how": "read"}, link.DenialRecord{Blockers: []string{"fs.read_file"}, Path: "/run/canary/canary", Exit: -13, Comm: "probe"}},
		{"a write", obj{"path": "/run/canary/canary", "how": "write"}, link.DenialRecord{Blockers: []string{"fs.write_file"}, Path: "/run/canary/canary", Exit: -13, Comm: "probe"}},
		{"a listing", obj{"path": "/tmp", "how": "list"}, link.DenialRecord{Blockers: []string{"fs.read_dir"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a folder", obj{"path": "/tmp/x", "how": "mkdir"}, link.DenialRecord{Blockers: []string{"fs.make_dir"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a symbolic link", obj{"path": "/tmp/x", "how": "symlink"}, link.DenialRecord{Blockers: []string{"fs.make_sym"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a fifo", obj{"path": "/tmp/x", "how": "mkfifo"}, link.DenialRecord{Blockers: []string{"fs.make_fifo"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a socket", obj{"path": "/tmp/x", "how": "socket"}, link.DenialRecord{Blockers: []string{"fs.make_sock"}, Path: "/tmp", Exit: -13, Comm: "probe"}},
		{"a removal", obj{"path": "/run/canary/canary", "how": "unlink"}, link.DenialRecord{Blockers: []string{"fs.remove_file"}, Path: "/run/canary", Exit: -13, Comm: "probe"}},
		{"a system call", obj{"how": "unshare"}, link.DenialRecord{Seccomp: true, Arch: "x86_64", Syscall: 272, Comm: "probe"}},
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
	t.Run("the process, not the thread", func(t *testing.T) { testProcesses(t, r) })
	t.Run("a nested domain", func(t *testing.T) { testNested(t, r) })
	t.Run("by way of a link", func(t *testing.T) { testLinked(t, r) })
	t.Run("in the log", func(t *testing.T) { testDeniedLog(t, r) })
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

// testStart: a program of Go is granted what its runtime looks at when it starts,
// such as /proc/<pid>/cgroup, so that no denial is there that nobody caused.
func testStart(t *testing.T, r *running) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, err := r.Denials(ctx, "probe", time.Time{})
	if err != nil || !d.Kept || !d.Complete || len(d.Records) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// testProcesses: threads cannot be told apart, processes can.
func testProcesses(t *testing.T, r *running) {
	pid := func(how string) int {
		d := r.deny(obj{"path": "/tmp/x", "how": how}, "1")
		if len(d.Records) != 1 {
			t.Fatalf("%+v", d.Records)
		}
		return d.Records[0].PID
	}
	first, thread, grandchild := pid(""), pid("thread"), pid("grandchild")
	if first != thread || first == grandchild || first == 0 {
		t.Errorf("pid %d, of a thread %d, of a grandchild %d", first, thread, grandchild)
	}
}

// testNested has the app try to mute its denials by a domain of its own. No class
// lets it: the attempt is on the record, and so is what it is refused afterwards.
func testNested(t *testing.T, r *running) {
	d := r.deny(obj{"how": "nested"}, "1")
	if _, ok := d.FindCall("landlock_create_ruleset"); !ok || len(d.Records) != 2 {
		t.Errorf("%+v", d.Records)
	}
	if _, ok := d.Find("fs.make_reg", "/tmp"); !ok {
		t.Errorf("the app has muted its denials: %+v", d.Records)
	}
}

// testLinked has the kernel name what a link leads to.
func testLinked(t *testing.T, r *running) {
	must(t, os.Symlink("/tmp", filepath.Join(r.ws, "link")))
	d := r.deny(obj{"path": "/workspace/link/x"}, "1")
	if got, ok := d.Find("fs.make_reg", "/tmp"); !ok || got.Exit != -13 {
		t.Errorf("%+v", d.Records)
	}
}

// testDeniedLog wants the log to tell of a denial with what the host knows.
func testDeniedLog(t *testing.T, r *running) {
	r.deny(obj{"path": "/tmp/log", "how": "mkdir"}, "1")
	r.deny(obj{"path": "tcp:81", "how": "connect_tcp"}, "1") // its class has no such sockets
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	socket := false
	for rec := range r.Logs(ctx) {
		d := rec.Denied
		if d != nil && d.Kind == "seccomp" && d.Syscall == "socket" {
			socket = d.Errno == "EPERM" && d.Capability == "" && strings.Contains(d.Because, "network:connect")
			break
		}
	}
	if !socket {
		t.Error("the log does not tell what a socket takes")
	}
	for rec := range r.Logs(ctx) {
		d := rec.Denied
		if d == nil || !slices.Equal(d.Blockers, []string{"fs.make_dir"}) {
			continue
		}
		if rec.App != "probe" || d.Kind != "landlock" || d.App != "probe" || d.Worker != "" || d.Object != "/tmp" || !strings.HasPrefix(d.Syscall, "mkdir") || d.Errno != "EACCES" || d.Capability != "filesystem:write:/tmp" || d.Calls < 1 {
			t.Errorf("%+v", d)
		}
		return
	}
	t.Error("the log does not tell of it")
}

// TestNetworkDenials: each network right, with the address. The same on a port
// that is granted leaves none.
func TestNetworkDenials(t *testing.T) {
	w := emulated(t)
	r := w.mustStart(t, func(o *sandbox.Options) {
		o.Apps = []sandbox.App{w.probe(t, "", func(p *policy.Policy) { p.Class, p.Connect, p.Bind = policy.ClassNetwork, []uint16{7}, []uint16{7} })}
	})
	for _, c := range []struct{ how, kind, blocker string }{
		{"connect_tcp", "tcp", "net.connect_tcp"},
		{"connect_udp", "udp", "net.connect_send_udp"},
		{"send_udp", "udp", "net.connect_send_udp"},
		{"bind_tcp", "tcp", "net.bind_tcp"},
		{"bind_udp", "udp", "net.bind_udp"},
	} {
		t.Run(c.how, func(t *testing.T) {
			d := r.deny(obj{"how": c.how, "path": c.kind + ":81"}, "1")
			if got, ok := d.Find(c.blocker, "127.0.0.1:81"); !ok || got.Exit != -13 || len(d.Records) != 1 {
				t.Errorf("%+v", d.Records)
			}
			granted := r.denials(func() {
				_, err := r.call("deny", obj{"how": c.how, "path": c.kind + ":7"})
				must(t, err)
			})
			if !granted.Complete || len(granted.Records) > 0 {
				t.Errorf("control: %+v", granted.Records)
			}
		})
	}
}

// envFlood is how many denials the flood has, for those with the time for more.
const envFlood = "BERTH_TEST_FLOOD"

// testFlood compares what came with the kernel's own count of the domain.
func testFlood(t *testing.T, r *running) {
	const atOnce = 5000
	flood := uint64(atOnce)
	if n := os.Getenv(envFlood); n != "" {
		var err error
		flood, err = strconv.ParseUint(n, 10, 32)
		must(t, err)
	}
	began := time.Now()
	for range flood / atOnce {
		_, err := r.call("deny", obj{"path": "/tmp/x", "times": atOnce})
		must(t, err)
	}
	t.Logf("%d denials in %s", flood, time.Since(began).Round(time.Millisecond))
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

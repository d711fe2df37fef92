package sandbox_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	guest "github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/sdk/protocol"
	"github.com/berthos/berth/tools/testimage"
)

// Limits of the app that attacks, and of its control.
var (
	tight = policy.Limits{CPUMilli: 1000, MemoryMB: 64, Pids: 64}
	wide  = policy.Limits{CPUMilli: 1000, MemoryMB: 192, Pids: 4096}
)

// killed is how a bomb ends that hits the limit on memory.
const killed = "memory"

// bombs take without end, and what must stop each. Most is far beyond any limit;
// safe is what the host bears without one, and beyond the limit. Slow is Most in an emulated VM.
var bombs = []struct {
	kind, path string
	most, safe int
	want       string // errnos, or killed
	memory     bool   // its limit is the cgroup's on memory
	kernel     bool   // its limit is the kernel's for one user: no control gets further
	slow       bool   // in an emulated VM: what others show there as well is left out
}{
	{kind: "fork", most: 10_000, safe: 150, want: "EAGAIN"},
	{kind: "threads", most: 100_000, safe: 1500, want: "EAGAIN"},
	{kind: "memory", most: 1 << 20, safe: 130, want: killed, memory: true},
	{kind: "shm", most: 10_000, safe: 130, want: killed, memory: true},
	{kind: "tmpfs", path: "/scratch", most: 1 << 20, safe: 90, want: "ENOSPC"},
	{kind: "pipes", most: 8000, safe: 130, want: killed + " EMFILE", memory: true},
	{kind: "sockets", most: 8000, safe: 20, want: killed + " EMFILE", memory: true},
	{kind: "epoll", most: 10_000, safe: 600, want: killed + " ENOSPC", memory: true, slow: true},
	{kind: "timers", most: 100_000, safe: 6000, want: "EAGAIN"},
	{kind: "inotify", most: 100_000, safe: 100_000, want: "EMFILE " + killed, kernel: true},
	{kind: "watches", path: "/scratch", most: 200_000, safe: 60_000, want: killed + " ENOSPC", kernel: true, slow: true},
	{kind: "files", most: 1 << 20, safe: 20_000, want: "EMFILE"},
	{kind: "inodes", path: "/scratch", most: 1 << 20, safe: 60_000, want: killed + " ENOSPC", memory: true},
}

// bombed is how a bomb ended.
type bombed struct {
	count int
	by    string // an errno, killed, or "" if it had all that it wanted
	err   error  // of the call
}

// bomb calls one and learns how far it got, also if it did not live to tell.
func (r *running) bomb(kind, path string, most int) bombed {
	r.t.Helper()
	input, err := json.Marshal(obj{"kind": kind, "path": path, "most": most})
	must(r.t, err)
	var last atomic.Int64
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	out, err := r.Call(ctx, sandbox.CallRequest{App: "probe", Export: "bomb", Input: input, OnMessage: func(m protocol.Message) {
		if m.Type == protocol.TypeProgress {
			last.Store(int64(m.Value))
		}
	}})
	if err != nil {
		by := ""
		switch {
		case strings.Contains(err.Error(), "out of memory: its limit is"):
			by = killed
		case strings.Contains(err.Error(), "out of processes: its limit is"):
			by = "EAGAIN" // Go's runtime was refused a thread before the bomb was
		}
		return bombed{int(last.Load()), by, err}
	}
	var said struct {
		Count int
		Error string
	}
	must(r.t, json.Unmarshal(out, &said))
	return bombed{said.Count, said.Error, nil}
}

// again starts the attacker anew, so that it holds nothing.
func (r *running) again(w world, l policy.Limits) {
	r.t.Helper()
	must(r.t, r.Replace(r.t.Context(), w.attacker(r.t, l)))
}

func (w world) attacker(t testing.TB, l policy.Limits) sandbox.App {
	return w.probe(t, "", func(p *policy.Policy) { p.Limits = l })
}

// attacked starts a sandbox with an attacker and an app beside it.
func (w world) attacked(t testing.TB, l policy.Limits, edit func(*sandbox.Options)) *running {
	t.Helper()
	return w.mustStart(t, func(o *sandbox.Options) {
		o.Apps = []sandbox.App{w.attacker(t, l), w.second(t, func(p *policy.Policy) { p.Paths = nil })}
		if edit != nil {
			edit(o)
		}
	})
}

// beside calls the other app until f has returned: every call must be answered.
// It returns how often it was.
func (r *running) beside(f func()) (calls int) {
	r.t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			if err := r.callApp("other", "whoami", obj{}); err != nil {
				r.t.Errorf("the other app: %v", err)
				return
			}
			calls++
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond): // an ordinary caller, no attacker
			}
		}
	})
	f()
	close(stop)
	all.Wait()
	return calls
}

// resident is this process's memory in MiB.
func resident(t testing.TB) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return kib >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// limited reports whether a cgroup limits the apps.
func (r *running) limited() bool {
	return slices.Contains(r.Apps()[0].Enforced.Steps, guest.StepCgroup)
}

// testWorld is w with the image whose enforcer can leave steps out.
func (w world) testWorld(t *testing.T) world {
	t.Helper()
	img, err := image.Open(image.Location{Dir: testimage.Dir(t, index.KindTest), Source: "test"}, image.Options{AllowTest: true})
	must(t, err)
	w.image = img
	return w
}

// A bomb hits the limit of its own app and nothing else: the app beside it
// answers, PID 1 goes on, the host's memory does not grow; and the caller is
// told which limit it was. Without the limits (ablation) it gets further.
func TestBombs(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		before := resident(t)
		r := w.attacked(t, tight, nil)
		limited, emulated := r.limited(), r.machine != machine.Native
		reached := map[string]int{}
		for _, b := range bombs {
			t.Run(b.kind, func(t *testing.T) {
				most := b.most
				if emulated && b.slow {
					return
				}
				if b.memory && !limited {
					most = b.safe // nothing stops it but this
				}
				var got bombed
				calls := r.beside(func() { got = r.bomb(b.kind, b.path, most) })
				t.Logf("%d, %q, %d calls beside it", got.count, got.by, calls)
				reached[b.kind] = got.count
				switch {
				case b.memory && !limited: // said in Enforced.Weaker
				case got.by == "" || !strings.Contains(b.want, got.by):
					t.Errorf("it ended with %q, %v, want %s", got.by, got.err, b.want)
				case got.count >= most:
					t.Errorf("it got all %d", most)
				case got.by == killed:
					contains(t, got.err, "out of memory: its limit is 64 MiB")
				}
				must(t, r.callApp("other", "whoami", obj{}))
				if b.kind == "inotify" { // counted for this user too: enough must be left
					for range 32 {
						fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
						must(t, err)
						defer unix.Close(fd)
					}
				}
				r.again(w, tight)
			})
		}
		if grown := resident(t) - before; grown > 128 {
			t.Errorf("this process has grown by %d MiB", grown)
		}
		must(t, r.Close(t.Context()))
		if os.Geteuid() != 0 {
			return // the limits of root's apps were left out above
		}
		open := w.testWorld(t)
		r = open.attacked(t, wide, func(o *sandbox.Options) { o.Ablate = []string{guest.StepCgroup, guest.StepRlimits} })
		for _, b := range bombs {
			if b.kernel || emulated && (b.slow || b.kind == "inodes" || b.kind == "files") {
				continue // PID 1 of the VM has no more than 4096 descriptors to give
			}
			t.Run("without/"+b.kind, func(t *testing.T) {
				got := r.bomb(b.kind, b.path, b.safe)
				t.Logf("%d, %q", got.count, got.by)
				if got.count <= reached[b.kind] {
					t.Errorf("it got no further than with the limit: %d, %d; %q %v", got.count, reached[b.kind], got.by, got.err)
				}
				r.again(open, wide)
			})
		}
	})
}

// floods say, write or are refused without end; nothing is full then, and the
// app goes on. Most is in MiB, or in thousands of denials.
var floods = []struct {
	kind, path string
	most, slow int
}{
	{"line", "", 512, 8},   // one line without an end
	{"lines", "", 64, 2},   // of 16 bytes
	{"denied", "", 300, 2}, // system calls
	{"cache", "/workspace", 256, 16},
	{"dentries", "/workspace", 300_000, 500},
	{"disk", "/workspace", 200, 8},
}

func TestFloods(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.attacked(t, tight, nil)
		followers := r.Logs(t.Context()) // nobody reads it
		for _, f := range floods {
			t.Run(f.kind, func(t *testing.T) {
				before, most := resident(t), f.most
				if r.machine != machine.Native {
					most = f.slow
				}
				var got bombed
				calls := r.beside(func() { got = r.bomb(f.kind, f.path, most) })
				t.Logf("%d, %d calls beside it, memory %d to %d MiB", got.count, calls, before, resident(t))
				if got.err != nil || got.count != most {
					t.Errorf("it ended at %d of %d with %q: %v", got.count, most, got.by, got.err)
				}
				if grown := resident(t) - before; grown > 64 {
					t.Errorf("this process has grown by %d MiB", grown)
				}
			})
		}
		if len(followers) > 2*cap(followers) {
			t.Errorf("a follower holds %d records", len(followers))
		}
		// No quota: what is written to a shared folder is on the host's disk.
		info, err := os.Stat(filepath.Join(r.ws, "fill"))
		if err != nil || info.Size() == 0 {
			t.Errorf("the filled file: %v, %v", info, err)
		}
	})
}

// An app gets no more of the processors than its limit, whatever it does, and
// cannot ask for more; without the limit (ablation) it does.
func TestProcessors(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		half := tight
		half.CPUMilli = 300
		r := w.attacked(t, half, nil)
		share := func(r *running) (used float64) {
			r.beside(func() {
				text, err := r.call("spin", obj{"seconds": 2, "threads": 4})
				must(t, err)
				used, err = strconv.ParseFloat(text, 64)
				must(t, err)
			})
			return used
		}
		used := share(r)
		t.Logf("%.2f of a processor", used)
		if r.limited() && used > 0.45 {
			t.Errorf("it used %.2f of a processor, its limit is 0.3", used)
		}
		got, err := r.call("priority", obj{})
		must(t, err)
		if got != "" {
			t.Errorf("it was given %s", got)
		}
		must(t, r.Close(t.Context()))
		if !r.limited() {
			return
		}
		open := w.testWorld(t)
		r = open.attacked(t, half, func(o *sandbox.Options) { o.Ablate = []string{guest.StepCgroup} })
		if without := share(r); without < used+0.15 {
			t.Errorf("without the limit it used %.2f, with it %.2f", without, used)
		}
	})
}

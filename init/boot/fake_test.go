package boot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthos/berth/init/cgroup"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// fake is a System that does nothing but note what it is asked, and fails or
// panics where it is told to.
type fake struct {
	mu     sync.Mutex // guards what follows
	calls  []string
	fail   map[string]error
	panics string
	now    time.Time
	conns  []link.Conn // what OpenLink returns, in turn
}

func (f *fake) do(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if call == f.panics {
		panic("told to")
	}
	return f.fail[call]
}

// did returns what was asked, but for repetitions of no interest.
func (f *fake) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fake) openLink(context.Context) (link.Conn, error) {
	if err := f.do("open link"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.conns) == 0 {
		return nil, errors.New("no host comes")
	}
	conn := f.conns[0]
	f.conns = f.conns[1:]
	return conn, nil
}

func (f *fake) system() *System {
	return &System{
		Now:       func() time.Time { return f.now },
		SetClock:  func(t time.Time) error { return f.do("set clock " + t.UTC().Format(time.DateTime)) },
		Mkdir:     func(path string, _ fs.FileMode) error { return f.do("mkdir " + path) },
		RemoveAll: func(path string) error { return f.do("remove " + path) },
		Sysctl: func(path, value string) (string, error) {
			return value, f.do("sysctl " + strings.TrimPrefix(path, "/proc/sys/"))
		},
		Mount:      func(m mount) error { return f.do("mount " + m.target) },
		Unmount:    func(target string) error { return f.do("unmount " + target) },
		Mount9P:    func(_ *os.File, target string, _ bool) error { return f.do("mount 9p " + target) },
		Hostname:   func(name string) error { return f.do("hostname " + name) },
		LoopbackUp: func() error { return f.do("loopback") },
		Landlock:   func() int { return 11 },
		Errata:     func() int { return 0b111 },
		Kernel:     func() string { return "7.3" },
		MemoryUsed: func() (int64, error) { return 1000, f.do("measure memory") },
		Emulated:   func() bool { return false },
		Audit:      func() (auditor, error) { return newFakeAudit(), f.do("audit") },
		Parent:     func(int) int { return 0 },
		OpenLink:   f.openLink,
		Console:    func(line string) { _ = f.do("console " + line) },
		KernelLog:  func() (io.ReadCloser, error) { return nil, errors.New("none") },
		Start: func(string, []string, []string, []uintptr, *syscall.SysProcAttr) (int, error) {
			return 0, f.do("start process")
		},
		Wait4:   func() (int, syscall.WaitStatus) { return 0, 0 },
		Signal:  func(int, syscall.Signal) error { return nil },
		Signals: func(context.Context) <-chan os.Signal { return make(chan os.Signal) },
		Cgroup: func(app string, _ policy.Limits, _ []string) (*appGroup, error) {
			return &appGroup{
				procs: func(string) []*os.File { return nil }, hits: func(string) cgroup.Hits { return cgroup.Hits{} },
				remove: func() error { return f.do("remove cgroup " + app) },
			}, f.do("cgroup " + app)
		},
		Listen: func(path string) (*os.File, error) {
			if err := f.do("listen " + path); err != nil {
				return nil, err
			}
			return os.Open(os.DevNull)
		},
		Dial:   func(context.Context, string) (net.Conn, error) { return nil, f.do("dial") },
		Sync:   func() { _ = f.do("sync") },
		Reboot: func() error { return f.do("reboot") },
		Abort:  func() { panic("not ended in order") },
	}
}

// runFake runs PID 1 on a fake system with a host at the other end, and
// returns the host's end and what PID 1 ends with.
func runFake(t *testing.T, f *fake) (*hostEnd, <-chan int) {
	t.Helper()
	if f.now.IsZero() {
		f.now = time.Unix(1_800_000_000, 0)
	}
	ours, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	guest, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	f.conns = append(f.conns, guest.(*net.UnixConn))
	code := make(chan int, 1)
	go func() {
		code <- Main(t.Context(), World{Args: []string{string(sandbox.ProfileVM)}, Stderr: io.Discard, System: f.system()})
	}()
	h := meet(t, ours, nil)
	stream, err := h.session.OpenStream(link.StreamHeader{Type: link.StreamControl})
	if err != nil {
		t.Fatal(err)
	}
	h.control = link.NewControl(stream)
	return h, code
}

// until receives messages until f is content with one.
func (h *hostEnd) until(want func(link.Control) bool) link.Control {
	h.t.Helper()
	for {
		if m := h.receive(); want(m) {
			return m
		}
	}
}

// failure returns why the sandbox failed, and closes the link as hosts do once
// they have the last message.
func (h *hostEnd) failure() *link.Failed {
	h.t.Helper()
	failed := h.until(func(m link.Control) bool { return m.Failed != nil }).Failed
	h.until(func(m link.Control) bool { return m.Down != nil })
	_ = h.session.Close()
	return failed
}

// Package monitor owns the process that holds a sandbox: the link to the guest,
// the served folders, the calls, the log and control.sock. It is a second life of
// the program. Its parent, the command that a user started, builds apps, reads
// manifests and secrets and drives it over an inherited socket; the monitor
// locks itself in before it reads the first byte of the guest.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine/keeper"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/init/link"
)

// Arg is the first argument by which a program knows that it is a monitor.
const Arg = "__monitor"

// Descriptors of a monitor.
const (
	fdParent = 3
	fdAudit  = 4 // to the auditor; without one, the first of Options.Hold
)

var errAttached = errors.New("cannot stop the sandbox: the command that started it does that")

// Options say what to run, and who is told.
type Options struct {
	Start Spec
	Apps  []App
	// OnEvent and OnLog are called from one goroutine. A slow one slows the
	// sandbox's events, and loses log records.
	OnEvent func(Event)
	OnLog   func(link.LogRecord)
	// Audit is of auditor.Start, and is closed once the monitor has it; nil: no
	// trail is kept, as in tests.
	Audit *os.File
	// Hold are files that stay open as long as the monitor lives: locks.
	Hold []*os.File
	// Log gets what the monitor prints; nil: what it printed last is part of the
	// error when it dies.
	Log *os.File

	env []string // tests only
}

// Monitor is the running process, seen from its parent.
type Monitor struct {
	o       Options
	cmd     *exec.Cmd
	out     *channel
	stderr  *os.File // in memory; nil if Options.Log is set
	started chan struct{}
	gone    chan struct{} // closed once the process has ended

	state   Started // set before started is closed
	failure error   // set before started is closed, or gone
	closing bool    // Close was called; guarded by mu

	mu      sync.Mutex // guards what follows
	ended   *Ended
	waiting map[int64]chan *replaced
	count   int64
}

// Start runs a monitor and waits until the apps answer. After an error nothing
// is left. Once it has returned, ctx has no more meaning.
func Start(ctx context.Context, o Options) (*Monitor, error) {
	o.Start.Audited = o.Audit != nil
	m, err := launch(o)
	if o.Audit != nil {
		o.Audit.Close() // the auditor ends with the monitor
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the monitor: %w", err)
	}
	go m.watch()
	stop := context.AfterFunc(ctx, func() { m.abandon() })
	err = m.order()
	select {
	case <-m.started:
	case <-m.gone:
	}
	if !stop() {
		m.abandon()
		<-m.gone
		return nil, context.Cause(ctx)
	}
	select {
	case <-m.started:
		return m, nil
	default:
	}
	if m.failure == nil {
		m.failure = fmt.Errorf("cannot start the monitor: %w", err)
	}
	return nil, m.failure
}

func launch(o Options) (*Monitor, error) {
	ours, theirs, err := keeper.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	m := &Monitor{o: o, out: &channel{conn: ours}, started: make(chan struct{}), gone: make(chan struct{}), waiting: map[int64]chan *replaced{}}
	stderr := o.Log
	if stderr == nil {
		fd, err := unix.MemfdCreate("monitor-stderr", unix.MFD_CLOEXEC)
		if err != nil {
			ours.Close()
			return nil, err
		}
		m.stderr = os.NewFile(uintptr(fd), "stderr")
		stderr = m.stderr
	}
	m.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"berth-monitor", Arg},
		Env: append([]string{"PATH=" + os.Getenv("PATH")}, o.env...), // where QEMU is found
		Dir: "/", Stdout: stderr, Stderr: stderr,
		ExtraFiles:  inherited(theirs, o),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // a terminal's Ctrl-C is for the parent
	}
	if err := m.cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	return m, nil
}

func inherited(parent *os.File, o Options) []*os.File {
	list := []*os.File{parent}
	if o.Audit != nil {
		list = append(list, o.Audit)
	}
	return append(list, o.Hold...)
}

// order tells the monitor what to start.
func (m *Monitor) order() error {
	for _, a := range m.o.Apps {
		if err := m.out.send(order{App: &a}, a.Image); err != nil {
			return err
		}
	}
	return m.out.send(order{Start: &m.o.Start}, nil)
}

// abandon is what the parent's death is to the monitor.
func (m *Monitor) abandon() { m.out.conn.Close() }

// watch takes reports until the monitor is gone.
func (m *Monitor) watch() {
	defer close(m.gone)
	var bad error
	for {
		var r report
		if _, err := receive(m.out.conn, &r, maxReport, 0); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
				bad = err
			}
			break
		}
		if bad = r.check(); bad != nil {
			break
		}
		m.take(r)
	}
	if bad != nil { // it does not say what it may: it is not what was started
		_ = m.cmd.Process.Kill()
	}
	err := m.cmd.Wait()
	m.out.conn.Close()
	m.settle(err, bad)
}

func (m *Monitor) take(r report) {
	switch {
	case r.Started != nil:
		select {
		case <-m.started: // once
		default:
			m.state = *r.Started
			close(m.started)
		}
	case r.Failed != nil:
		m.failure = hint.Errorf(r.Failed.Hint, "%s", r.Failed.Reason)
	case r.Event != nil && m.o.OnEvent != nil:
		m.o.OnEvent(*r.Event)
	case r.Log != nil && m.o.OnLog != nil:
		m.o.OnLog(*r.Log)
	case r.Replaced != nil:
		m.mu.Lock()
		ch := m.waiting[r.Replaced.N]
		delete(m.waiting, r.Replaced.N)
		m.mu.Unlock()
		if ch != nil {
			ch <- r.Replaced
		}
	case r.Ended != nil:
		m.mu.Lock()
		m.ended = r.Ended
		m.mu.Unlock()
	}
}

// settle words the monitor's end. What a monitor that died left behind is
// collected: its keeper ends the sandbox.
func (m *Monitor) settle(exit, bad error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case bad != nil:
		m.failure = fmt.Errorf("cannot go on: the monitor sent what is no report: %w", bad)
	case m.ended != nil && m.ended.Reason != "":
		m.failure = errors.New(m.ended.Reason)
	case m.ended == nil && m.failure == nil:
		m.failure = fmt.Errorf("the monitor, which holds the sandbox, died: %s", m.lastWords(exit))
	}
	if m.stderr != nil {
		m.stderr.Close()
	}
}

// lastWords is how the monitor ended and the first line of what it printed.
func (m *Monitor) lastWords(exit error) string {
	words := "exit status 0"
	if exit != nil {
		words = exit.Error()
	}
	if m.stderr == nil {
		return words
	}
	buf := make([]byte, 512)
	if n, _ := m.stderr.ReadAt(buf, 0); n > 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), "\n")
		words += ": " + first
	}
	return words
}

// State describes the sandbox as it was started.
func (m *Monitor) State() Started { return m.state }

// PID is the monitor's process id.
func (m *Monitor) PID() int { return m.cmd.Process.Pid }

// Done is closed once the monitor is gone.
func (m *Monitor) Done() <-chan struct{} { return m.gone }

// Err says why it is gone; nil while it runs, and if it was told to end.
func (m *Monitor) Err() error {
	select {
	case <-m.gone:
	default:
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil
	}
	return m.failure
}

// Replace has an app started anew, as sandbox.Replace does.
func (m *Monitor) Replace(ctx context.Context, a App) (AppState, error) {
	answer := make(chan *replaced, 1)
	m.mu.Lock()
	m.count++
	n := m.count
	m.waiting[n] = answer
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.waiting, n)
		m.mu.Unlock()
	}()
	if err := m.out.send(order{Replace: &replace{N: n, App: a}}, a.Image); err != nil {
		return AppState{}, fmt.Errorf("cannot tell the monitor: %w", err)
	}
	select {
	case r := <-answer:
		switch {
		case r.Failed != nil:
			return AppState{}, hint.Errorf(r.Failed.Hint, "%s", r.Failed.Reason)
		case r.App == nil:
			return AppState{}, errors.New("cannot read the monitor's answer: it says nothing")
		}
		return *r.App, nil
	case <-m.gone:
		return AppState{}, errors.New("the monitor ended")
	case <-ctx.Done():
		return AppState{}, context.Cause(ctx)
	}
}

// Detach leaves the monitor to itself: the sandbox goes on when the parent ends.
func (m *Monitor) Detach() error {
	if err := m.out.send(order{Detach: &none{}}, nil); err != nil {
		return fmt.Errorf("cannot detach the monitor: %w", err)
	}
	return nil
}

// patience is how long a monitor that was killed may leave its keeper behind.
const patience = 2 * time.Second

// Close ends the sandbox and returns when nothing is left. When ctx ends first,
// the monitor is killed, and its keeper if that does not answer either.
func (m *Monitor) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	_ = m.out.send(order{Stop: &none{}}, nil) // one that is gone needs no order
	select {
	case <-m.gone:
		return nil
	case <-ctx.Done():
	}
	return EndByForce(m.PID(), m.gone, m.o.Start.Runtime)
}

// EndByForce kills a monitor that does not end, waits for its keeper to clean
// up, and kills that too if it is stopped. What then lies about is collected.
func EndByForce(pid int, gone <-chan struct{}, runtime string) error {
	keepers := childrenOf(pid)
	defer keepers.close()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if gone != nil {
		<-gone
	}
	stuck := keepers.wait(patience)
	keepers.kill()
	rt, err := runtimedir.Open(runtimedir.Search{Path: runtime})
	if err != nil {
		return err
	}
	if _, err := rt.Collect(); err != nil {
		return fmt.Errorf("cannot remove everything of the sandbox; the next start tries again: %w", err)
	}
	if stuck {
		return errors.New("the sandbox was ended by force: its keeper did not answer")
	}
	return nil
}

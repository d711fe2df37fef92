package boot

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/berthos/berth/init/sandbox"
)

// processes starts children and reaps every process that ends under PID 1.
// Nothing else in this program may wait: with one wait4(-1) loop and a lock
// over "start and remember", an orphan that ends is reaped, and a child of
// ours is never taken for one, however fast it ends. (os/exec waits by itself
// and would race with the loop.)
type processes struct {
	sys *System

	mu       sync.Mutex // guards what follows; held over start, reap and signal
	children map[int]*process
}

// process is a child. exited is closed when it has been reaped.
type process struct {
	owner  *processes
	pid    int
	exited chan struct{}
	status syscall.WaitStatus // once exited is closed
}

func newProcesses(sys *System) *processes {
	return &processes{sys: sys, children: map[int]*process{}}
}

func (ps *processes) start(path string, argv, env []string, files []uintptr, attr *syscall.SysProcAttr) (*process, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	pid, err := ps.sys.Start(path, argv, env, files, attr)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", path, err)
	}
	c := &process{owner: ps, pid: pid, exited: make(chan struct{})}
	ps.children[pid] = c
	return c, nil
}

// reap takes every process that has ended.
func (ps *processes) reap() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for {
		pid, status := ps.sys.Wait4()
		if pid <= 0 {
			return
		}
		if c := ps.children[pid]; c != nil {
			delete(ps.children, pid)
			c.status = status
			close(c.exited)
		}
	}
}

// signal does nothing once the process has been reaped: its number may be
// another's by then.
func (c *process) signal(sig syscall.Signal) {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.owner.children[c.pid] == c {
		_ = c.owner.sys.Signal(c.pid, sig)
	}
}

// describe puts an exit status into words, as os/exec does.
func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal: " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// startReaping handles signals for as long as the program runs.
func (p *pid1) startReaping(ctx context.Context) error {
	signals := p.sys.Signals(ctx)
	p.spawn("reap", func() {
		for sig := range signals {
			if sig != os.Signal(syscall.SIGCHLD) {
				p.end(ending{err: fmt.Errorf("%s", sig)})
				continue
			}
			p.procs.reap()
		}
	})
	return nil
}

// describeApp does so for an app, whose enforcer tells by its own exit status
// which signal ended it.
func describeApp(s syscall.WaitStatus) string {
	if n := s.ExitStatus() - sandbox.ExitSignal; s.Exited() && n > 0 && n <= 64 {
		return "signal: " + syscall.Signal(n).String()
	}
	return describe(s)
}

package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// launcher starts runs of one process of an app, each through a fresh enforcer.
type launcher struct {
	p      *pid1
	name   string // of the process among all (policy.Instance)
	start  link.Start
	policy policy.Policy // of the app
	rights policy.Rights // of this process
	code   string
	dir    string // of its socket
}

func (l *launcher) socket() string { return filepath.Join(l.dir, "sock") }

// pipes are the ends of an instance's descriptors that PID 1 keeps, and those
// that its enforcer gets.
type pipes struct {
	spec, report, goes, out, err *os.File // ours
	theirs                       []*os.File
}

func (ps *pipes) closeTheirs() {
	for _, f := range ps.theirs {
		_ = f.Close()
	}
}

func (ps *pipes) closeOurs() {
	for _, f := range []*os.File{ps.spec, ps.report, ps.goes, ps.out, ps.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// launch starts the enforcer in new namespaces and hands it its descriptors.
func (l *launcher) launch(context.Context) (instance, error) {
	app := l.name
	shares, err := l.p.sharesFor(l.start.Shares)
	if err != nil {
		return nil, failed(stepStart, fmt.Errorf("cannot start app %q: %w", app, err))
	}
	listener, err := l.listen()
	if err != nil {
		return nil, failed(stepStart, fmt.Errorf("cannot start app %q: %w", app, err))
	}
	defer listener.Close()
	group, err := l.cgroup()
	if err != nil {
		return nil, failed("cgroup", fmt.Errorf("cannot start app %q: %w", app, err))
	}
	in, err := l.execute(listener, group, shares)
	if err != nil {
		_ = group.leave()
		return nil, failed(stepStart, fmt.Errorf("cannot start app %q: %w", app, err))
	}
	return in, nil
}

// execute starts the enforcer with all that it gets.
func (l *launcher) execute(listener *os.File, group *group, shares []sandbox.Share) (*running, error) {
	ps, err := newPipes(listener)
	if err != nil {
		return nil, err
	}
	defer ps.closeTheirs()
	calls, err := l.newInvokes()
	if err != nil {
		ps.closeOurs()
		return nil, err
	}
	defer calls.closeTheirs()
	child, err := l.p.procs.start(enforcer, []string{enforcer}, []string{}, descriptors(ps.theirs, group.procs, calls.theirs), namespaces())
	if err != nil {
		ps.closeOurs()
		calls.close()
		return nil, err
	}
	return l.started(ps, calls, child, group, l.spec(shares, len(group.procs))), nil
}

// listen makes the socket on which the app will accept calls. PID 1 keeps only
// its name: once the app is gone, nobody can connect.
func (l *launcher) listen() (*os.File, error) {
	if err := l.p.sys.RemoveAll(l.dir); err != nil {
		return nil, fmt.Errorf("cannot clear folder: %w", err)
	}
	if err := l.p.sys.Mkdir(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create folder: %w", err)
	}
	return l.p.sys.Listen(l.socket())
}

// newPipes makes the descriptors in the order that package sandbox fixes; those
// of the cgroup follow.
func newPipes(listener *os.File) (*pipes, error) {
	ps := &pipes{}
	var errs []error
	childReads := func(ours **os.File) *os.File {
		r, w, err := os.Pipe()
		errs, *ours = append(errs, err), w
		return r
	}
	childWrites := func(ours **os.File) *os.File {
		r, w, err := os.Pipe()
		errs, *ours = append(errs, err), r
		return w
	}
	null, err := os.Open(os.DevNull)
	errs = append(errs, err)
	ps.theirs = []*os.File{
		null, childWrites(&ps.out), childWrites(&ps.err),
		childReads(&ps.spec), childWrites(&ps.report), childReads(&ps.goes), listener,
	}
	if err := errors.Join(errs...); err != nil {
		ps.closeOurs()
		ps.closeTheirs()
		return nil, err
	}
	return ps, nil
}

// descriptors returns the numbers of files. Fd makes them block, which is what
// an app expects of its standard descriptors.
func descriptors(lists ...[]*os.File) (fds []uintptr) {
	for _, files := range lists {
		for _, f := range files {
			fds = append(fds, f.Fd())
		}
	}
	return fds
}

// namespaces is the set that every app has for itself.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
}

func (l *launcher) spec(shares []sandbox.Share, cgroups int) sandbox.Spec {
	return sandbox.Spec{
		Profile:  l.p.profile,
		Policy:   l.start.Policy,
		Worker:   l.start.Worker,
		UID:      l.start.UID,
		GID:      l.start.GID,
		Hostname: l.start.App,
		Code:     l.code,
		Shares:   shares,
		Cgroups:  cgroups,
		ABI:      l.p.config.ABI,
		Ablate:   l.start.Ablate,
		Invoke:   l.callees(),
		Secrets:  l.start.Secrets,
	}
}

// started sends the enforcer its Spec and begins to collect what it prints.
func (l *launcher) started(ps *pipes, calls *invokes, child *process, g *group, spec sandbox.Spec) *running {
	in := &running{
		l: l, child: child, reports: newReports(ps.report), goes: ps.goes, group: g, invokes: calls,
		errors: l.p.logs.writer(l.name, "stderr"), drained: make(chan struct{}), exited: make(chan struct{}),
	}
	if l.p.records != nil {
		l.p.records.started(child.pid, l.name)
	}
	calls.serve()
	out := l.p.logs.writer(l.name, "stdout")
	outDone := make(chan struct{})
	l.p.spawn("stdout", func() { out.drain(ps.out); close(outDone) })
	l.p.spawn("stderr", func() { in.errors.drain(ps.err); <-outDone; close(in.drained) })
	l.p.spawn("spec", func() {
		// The enforcer says what it misses if this fails.
		_ = json.NewEncoder(ps.spec).Encode(spec)
		_ = ps.spec.Close()
	})
	l.p.spawn("wait", in.wait)
	return in
}

// cleanup removes what runs leave behind.
func (l *launcher) cleanup() { _ = l.p.sys.RemoveAll(l.dir) }

// dial connects to the app's socket.
func (l *launcher) dial(ctx context.Context) (net.Conn, error) {
	return l.p.sys.Dial(ctx, l.socket())
}

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

// launcher starts runs of one app, each through a fresh enforcer.
type launcher struct {
	p      *pid1
	start  link.Start
	policy policy.Policy
	code   string
}

func appDir(app string) string     { return filepath.Join(appsDir, app) }
func socketPath(app string) string { return filepath.Join(appDir(app), "sock") }

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
	app := l.start.App
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
	ps, err := newPipes(listener)
	if err == nil {
		defer ps.closeTheirs()
		var child *process
		child, err = l.p.procs.start(enforcer, []string{enforcer}, []string{}, descriptors(ps.theirs, group.procs), namespaces())
		if err == nil {
			return l.started(ps, child, group, l.spec(shares, len(group.procs))), nil
		}
		ps.closeOurs()
	}
	_ = group.remove()
	return nil, failed(stepStart, fmt.Errorf("cannot start app %q: %w", app, err))
}

// listen makes the socket on which the app will accept calls. PID 1 keeps only
// its name: once the app is gone, nobody can connect.
func (l *launcher) listen() (*os.File, error) {
	if err := l.p.sys.RemoveAll(appDir(l.start.App)); err != nil {
		return nil, fmt.Errorf("cannot clear folder: %w", err)
	}
	if err := l.p.sys.Mkdir(appDir(l.start.App), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create folder: %w", err)
	}
	return l.p.sys.Listen(socketPath(l.start.App))
}

// cgroup returns the group for a run: made here in a VM, inherited on a native
// machine.
func (l *launcher) cgroup() (*group, error) {
	if l.p.profile == sandbox.ProfileVM {
		return l.p.sys.Cgroup(l.start.App, l.policy.Limits)
	}
	g := &group{oom: func() bool { return false }}
	g.remove = func() error {
		for _, f := range g.procs {
			_ = f.Close()
		}
		return nil
	}
	for _, c := range l.p.native.Cgroups {
		if c.App != l.start.App {
			continue
		}
		for _, fd := range c.FDs {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("cannot use descriptor %d: %w", fd, err), g.remove())
			}
			g.procs = append(g.procs, os.NewFile(uintptr(dup), "cgroup.procs"))
		}
	}
	return g, nil
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
		UID:      l.start.UID,
		GID:      l.start.GID,
		Hostname: l.start.App,
		Code:     l.code,
		Shares:   shares,
		Cgroups:  cgroups,
		ABI:      l.p.config.ABI,
		Ablate:   l.start.Ablate,
	}
}

// started sends the enforcer its Spec and begins to collect what it prints.
func (l *launcher) started(ps *pipes, child *process, g *group, spec sandbox.Spec) *running {
	in := &running{
		l: l, child: child, reports: newReports(ps.report), goes: ps.goes, group: g,
		errors: l.p.logs.writer(l.start.App, "stderr"), drained: make(chan struct{}), exited: make(chan struct{}),
	}
	if l.p.records != nil {
		l.p.records.started(child.pid, l.start.App)
	}
	out := l.p.logs.writer(l.start.App, "stdout")
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
func (l *launcher) cleanup() { _ = l.p.sys.RemoveAll(appDir(l.start.App)) }

// dial connects to the app's socket.
func (l *launcher) dial(ctx context.Context) (net.Conn, error) {
	return l.p.sys.Dial(ctx, socketPath(l.start.App))
}

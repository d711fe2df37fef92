package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/berthos/berth/host/auditor"
	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/keeper"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
)

// Hooks are for tests; the zero value is what berth is.
type Hooks struct {
	// Without names layers of the confinement that are left out.
	Without []string
	// Around is called in place of the confinement, which it must call.
	Around func(r sandbox.Reach, confine func() error) error
}

// Limits of one monitor.
const (
	maxApps     = 32
	closeWithin = 4 * time.Second // from the parent's end to the sandbox's
)

// Main is the whole life of a monitor. The program calls it when its first
// argument is Arg, and exits with the result.
func Main(h Hooks) int {
	conn, err := keeper.Inherited(fdParent)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := &server{hooks: h, out: &channel{conn: conn}, in: conn, log: &logFile{now: os.Stderr}, apps: map[string]App{}, ready: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	if err := s.run(); err != nil {
		s.tell(report{Failed: failureOf(err)})
		return 1
	}
	return 0
}

// server is a monitor at work.
type server struct {
	hooks Hooks
	in    io.Reader
	out   *channel
	log   *logFile
	start Spec

	ctx    context.Context // ends when the sandbox is to end
	cancel context.CancelFunc
	sb     *sandbox.Sandbox
	how    string
	notes  []string
	ready  chan struct{} // closed once Started was sent

	mu       sync.Mutex     // guards what follows
	apps     map[string]App // by name, as they run
	detached bool
}

// tell reports to the parent, which may be gone.
func (s *server) tell(r report) { _ = s.out.send(r, nil) }

// run boots, serves until the end, and closes.
func (s *server) run() error {
	apps, err := s.await()
	if err != nil {
		return err
	}
	replaces := make(chan replace)
	go s.listen(replaces)
	if err := s.boot(apps); err != nil {
		return err
	}
	listener, err := control.Listen(s.sb.Dir())
	if err != nil {
		return errors.Join(err, s.close())
	}
	s.tell(report{Started: s.started()})
	close(s.ready)
	var tasks sync.WaitGroup
	ctx, cancel := context.WithCancel(s.ctx)
	tasks.Go(func() { s.serveControl(ctx, listener) })
	tasks.Go(func() { s.follow(ctx) })
	tasks.Go(func() { s.replaceEach(ctx, replaces) })
	var ended Ended
	select {
	case <-s.ctx.Done():
		_ = s.close()
	case <-s.sb.Done():
		if err := s.sb.Err(); err != nil {
			ended.Reason = trim(err.Error())
		}
	}
	cancel()
	tasks.Wait()
	s.tell(report{Ended: &ended})
	return nil
}

// await takes the parent's orders until it says to start.
func (s *server) await() (apps []sandbox.App, err error) {
	for {
		o, code, err := s.next()
		if err != nil {
			return nil, fmt.Errorf("cannot read what to start: %w", err)
		}
		switch {
		case o.App != nil && len(apps) == maxApps:
			return nil, fmt.Errorf("cannot start more than %d apps in one sandbox", maxApps)
		case o.App != nil:
			o.App.Image = code
			apps = append(apps, s.admit(*o.App))
		case o.Start != nil:
			s.start = *o.Start
			if s.logs() {
				s.log.before = os.NewFile(s.hold(), "log.1")
			}
			return apps, nil
		default:
			return nil, errors.New("cannot read what to start: another order came")
		}
	}
}

func (s *server) next() (o order, code []byte, err error) {
	if code, err = receive(s.in, &o, maxOrder, maxImage); err == nil {
		err = o.check()
	}
	return o, code, err
}

// hold is the first of Options.Hold; of a long-lived sandbox, the log before
// this one.
func (s *server) hold() uintptr {
	if s.start.Audited {
		return fdAudit + 1
	}
	return fdAudit
}

// journal reaches the auditor.
func (s *server) journal() (sandbox.Journal, error) {
	if !s.start.Audited {
		return nil, nil
	}
	return auditor.NewClient(os.NewFile(fdAudit, "auditor"))
}

// admit notes what runs, for explanations; the code is not kept.
func (s *server) admit(a App) sandbox.App {
	run := sandbox.App{Policy: a.Policy, Image: a.Image, Secrets: a.Secrets}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apps[appName(a.Policy)] = App{Manifest: a.Manifest}
	return run
}

// listen takes orders while the sandbox runs. Its end is that of the parent, and
// so of the sandbox unless that was detached.
func (s *server) listen(replaces chan<- replace) {
	for {
		o, code, err := s.next()
		s.mu.Lock()
		switch {
		case err != nil && s.detached && errors.Is(err, io.EOF):
			s.mu.Unlock()
			return
		case err == nil && o.Detach != nil:
			s.detached = true
		}
		s.mu.Unlock()
		switch {
		case err != nil || o.Stop != nil:
			s.cancel()
			return
		case o.Replace != nil:
			o.Replace.App.Image = code
			select {
			case replaces <- *o.Replace:
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// boot starts the sandbox.
func (s *server) boot(apps []sandbox.App) error {
	rt, err := runtimedir.Open(runtimedir.Search{Path: s.start.Runtime})
	if err != nil {
		return err
	}
	img, err := image.Open(image.Location{Dir: s.start.ImageDir, Digest: s.start.Image, Source: "the command that started this monitor"}, image.Options{})
	if err != nil {
		return err
	}
	m, err := s.machine(rt)
	if err != nil {
		return err
	}
	s.how = m.Describe()
	journal, err := s.journal()
	if err != nil {
		return err
	}
	s.sb, err = sandbox.Start(s.ctx, sandbox.Options{
		Machine: m, Image: img, Runtime: rt, Apps: apps, Shares: s.start.Shares,
		HostExecuted: s.start.HostExecuted, OnEvent: s.event, Confine: s.confine, Journal: journal,
	})
	return err
}

func (s *server) machine(rt *runtimedir.Root) (machine.Machine, error) {
	switch s.start.Machine {
	case machine.Native:
		return native.New(native.Options{Runtime: rt}), nil
	case machine.QEMU:
		return qemu.New(qemu.Options{Accel: s.start.Accel, Runtime: rt}), nil
	}
	return nil, fmt.Errorf("cannot use machine %q: there is none of this name", s.start.Machine)
}

func (s *server) confine(r sandbox.Reach) error {
	lock := func() (err error) {
		s.notes, err = confine(r, s.hooks.Without)
		return err
	}
	if s.hooks.Around != nil {
		return s.hooks.Around(r, lock)
	}
	return lock()
}

func (s *server) started() *Started {
	out := Started{ID: s.sb.ID(), Since: s.sb.Started(), Shares: s.sb.Shares(), Notes: append(s.notes, s.sb.Notes()...)}
	for _, a := range s.sb.Apps() {
		out.Apps = append(out.Apps, AppState{Name: a.Name, Enforced: a.Enforced})
	}
	return &out
}

// event passes on what is worth a line, once the parent knows of the sandbox: a
// start that fails is told once, as its error.
func (s *server) event(e sandbox.Event) {
	if e.Ended != nil {
		e.Ended.Console, e.Ended.Reason = trim(e.Ended.Console), trim(e.Ended.Reason)
	}
	out := Event{App: e.App, Exited: e.Exited, Failed: e.Failed, Name: e.Name, Ended: e.Ended}
	if e.Exited == nil && e.Failed == nil && e.Name == nil && (e.Ended == nil || e.Ended.Console == "") {
		return
	}
	select {
	case <-s.ready:
		s.show(out)
	default:
	}
}

// show prints an event where the parent is not there to do it.
func (s *server) show(e Event) {
	if !s.logs() {
		s.tell(report{Event: &e})
		return
	}
	for _, line := range e.Lines() {
		s.log.line(line)
	}
}

// logs reports whether the monitor writes a log of its own.
func (s *server) logs() bool { return s.start.Name != "" }

func (s *server) isDetached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detached
}

// follow passes the sandbox's log on.
func (s *server) follow(ctx context.Context) {
	for r := range s.sb.Logs(ctx) {
		if s.logs() {
			s.log.line(LogLine(r))
		} else {
			s.tell(report{Log: &r})
		}
	}
}

func (s *server) serveControl(ctx context.Context, l *net.UnixListener) {
	if err := control.Serve(ctx, l, s, nil); err != nil {
		s.tell(report{Log: &link.LogRecord{Stream: "monitor", Line: err.Error()}})
	}
}

// replaceEach replaces one app after the other.
func (s *server) replaceEach(ctx context.Context, replaces <-chan replace) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-replaces:
			s.tell(report{Replaced: s.replace(ctx, r)})
		}
	}
}

func (s *server) replace(ctx context.Context, r replace) *replaced {
	if err := s.sb.Replace(ctx, s.admit(r.App)); err != nil {
		return &replaced{N: r.N, Failed: failureOf(err)}
	}
	for _, a := range s.sb.Apps() {
		if a.Name == appName(r.App.Policy) {
			return &replaced{N: r.N, App: &AppState{Name: a.Name, Enforced: a.Enforced}}
		}
	}
	return &replaced{N: r.N, Failed: &Failure{Reason: "the app is gone"}}
}

func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return s.sb.Close(ctx)
}

func failureOf(err error) *Failure {
	return &Failure{Reason: trim(err.Error()), Hint: trim(hint.Of(err))}
}

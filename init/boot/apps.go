package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// maxCalls bounds the calls of one app that are open at once, so that one app
// can not use up the streams of all.
const maxCalls = 256

// apps is the register of processes of apps that were started and are not
// forgotten, by their names (policy.Instance).
type apps struct {
	p *pid1

	mu      sync.Mutex // guards what follows
	byName  map[string]*app
	started int // so far
	closing bool
	hurry   bool
	running sync.WaitGroup
}

// app is one started process of an app.
type app struct {
	name   string
	policy policy.Policy // of the whole app
	socket string        // where it accepts calls
	goes   chan struct{}
	stop   context.CancelFunc

	mu    sync.Mutex // guards what follows
	ready bool
	calls int
}

func newApps(p *pid1) *apps { return &apps{p: p, byName: map[string]*app{}} }

// start checks a request and runs the process in the background.
func (as *apps) start(ctx context.Context, s link.Start) {
	name := policy.Instance(s.App, s.Worker)
	if err := as.begin(ctx, name, s); err != nil {
		err = fmt.Errorf("cannot start app %q: %w", name, err)
		as.p.send(link.Control{Failed: &link.Failed{App: name, Step: stepStart, Reason: err.Error()}})
	}
}

func (as *apps) begin(ctx context.Context, name string, s link.Start) error {
	whole, own, err := checkStart(s)
	if err != nil {
		return err
	}
	within := time.Duration(s.ReadyMillis) * time.Millisecond
	if within <= 0 {
		within = defaultReady
	}
	ctx, stop := context.WithCancel(ctx)
	l := &launcher{p: as.p, name: name, start: s, policy: whole, rights: own.Rights, dir: as.newDir()}
	a := &app{name: name, policy: whole, socket: l.socket(), goes: make(chan struct{}, 1), stop: stop}
	if err := as.enter(a); err != nil {
		stop()
		return err
	}
	dir, done, err := as.p.codes.use(s, whole)
	if err != nil {
		as.leave(a)
		return err
	}
	l.code = dir
	sup := &supervisor{
		app: name, launch: l.launch, send: as.p.send, ready: a.setReady,
		within: min(within, longestReady), goes: a.goes,
	}
	as.p.spawn("app "+name, func() {
		last := sup.run(ctx)
		l.cleanup()
		done()
		as.leave(a)
		as.p.send(last)
	})
	return nil
}

// checkStart returns the policy of the app and that of the process.
func checkStart(s link.Start) (whole, own policy.Policy, err error) {
	if err := checkName(s.App); err != nil {
		return whole, own, err
	}
	if whole, err = policy.Parse(s.Policy); err != nil {
		return whole, own, err
	}
	if whole.App != s.App {
		return whole, own, fmt.Errorf("its policy is that of %q", whole.App)
	}
	if err := whole.Check(); err != nil {
		return whole, own, err
	}
	if own, err = whole.For(s.Worker); err != nil {
		return whole, own, err
	}
	if len(own.Invoke) > maxCallees {
		return whole, own, fmt.Errorf("it may call %d apps, at most %d can be", len(own.Invoke), maxCallees)
	}
	return whole, own, own.CheckSecrets(s.Secrets)
}

// newDir names a folder that no other process has or had.
func (as *apps) newDir() string {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.started++
	return filepath.Join(appsDir, strconv.Itoa(as.started))
}

func (as *apps) enter(a *app) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	switch {
	case as.closing:
		return errors.New("the sandbox is shutting down")
	case as.byName[a.name] != nil:
		return errors.New("it is running")
	}
	as.byName[a.name] = a
	as.running.Add(1)
	return nil
}

// leave forgets an app; its name is free before the host hears of its end.
func (as *apps) leave(a *app) {
	a.stop()
	as.mu.Lock()
	delete(as.byName, a.name)
	as.mu.Unlock()
	as.running.Done()
}

func (as *apps) find(name string) (*app, error) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a := as.byName[name]; a != nil {
		return a, nil
	}
	names := make([]string, 0, len(as.byName))
	for n := range as.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("no app %q is running; none is", name)
	}
	return nil, fmt.Errorf("no app %q is running; running: %s", name, strings.Join(names, ", "))
}

// release passes on the host's Go. One that nobody waits for is dropped: its
// app has ended meanwhile, and the host is being told.
func (as *apps) release(name string) {
	if a, err := as.find(name); err == nil {
		select {
		case a.goes <- struct{}{}:
		default:
		}
	}
}

// stop asks an app to end; Exited follows.
func (as *apps) stop(s link.Stop) {
	a, err := as.find(s.App)
	if err != nil {
		as.p.send(link.Control{Failed: &link.Failed{App: s.App, Step: "stop", Reason: err.Error()}})
		return
	}
	a.stop()
}

// patience is how long an app that is stopped gets for each step of that.
func (as *apps) patience() time.Duration {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.hurry {
		return impatience
	}
	return patience
}

// stopAll ends every app and waits until they are gone.
func (as *apps) stopAll(hurry bool) {
	as.mu.Lock()
	as.closing, as.hurry = true, hurry
	for _, a := range as.byName {
		a.stop()
	}
	as.mu.Unlock()
	as.running.Wait()
}

func (a *app) setReady(ready bool) {
	a.mu.Lock()
	a.ready = ready
	a.mu.Unlock()
}

// policyOf returns the policy of an app of which a process runs.
func (as *apps) policyOf(name string) (policy.Policy, bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for _, a := range as.byName {
		if a.policy.App == name {
			return a.policy, true
		}
	}
	return policy.Policy{}, false
}

// call connects a stream to an app, whose bytes PID 1 does not look at.
func (as *apps) call(ctx context.Context, name string, stream *link.Stream) {
	conn, hangUp, err := as.connect(ctx, name)
	if replyErr := stream.SendReply(err); err != nil || replyErr != nil {
		if conn != nil {
			_ = conn.Close()
			hangUp()
		}
		_ = stream.Close()
		return
	}
	defer hangUp()
	_ = link.Splice(stream, conn)
}

func (as *apps) connect(ctx context.Context, name string) (link.Half, func(), error) {
	a, err := as.find(name)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot call app %q: %w", name, err)
	}
	if err := a.enterCall(); err != nil {
		return nil, nil, fmt.Errorf("cannot call app %q: %w", name, err)
	}
	conn, err := as.p.sys.Dial(ctx, a.socket)
	if err != nil {
		a.leaveCall()
		return nil, nil, fmt.Errorf("cannot call app %q: cannot connect to it: %w", name, err)
	}
	half, ok := conn.(link.Half)
	if !ok {
		half = wholeClose{conn}
	}
	return half, a.leaveCall, nil
}

// wholeClose is for connections without halves; only tests have any.
type wholeClose struct{ net.Conn }

func (w wholeClose) CloseWrite() error { return w.Close() }

func (a *app) enterCall() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.ready:
		return errors.New("it is not ready")
	case a.calls >= maxCalls:
		return fmt.Errorf("%d calls are open, which is the limit", maxCalls)
	}
	a.calls++
	return nil
}

func (a *app) leaveCall() {
	a.mu.Lock()
	a.calls--
	a.mu.Unlock()
}

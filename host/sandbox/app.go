package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

// App is what to run: a policy and the code that it names.
type App struct {
	Policy []byte // the bytes of policy.Encode
	// Code: exactly one of the three.
	InRoot  bool   // the app of this name in the verified root file system, or of the name Code
	CodeDir string // a folder, packed at start
	Image   []byte // an app image
	Code    string // with InRoot: the app of the root whose code it is; "": its own
	// Secrets are values by name: exactly those that the policy names. They are
	// handed to the processes that may have them and to nobody else.
	Secrets map[string]string
	// ReadyMillis bounds the time from start to ready; 0: the guest's default.
	ReadyMillis int64
}

// rootName is the name of an app's code in the root file system.
func (a App) rootName(name string) string {
	if a.Code != "" {
		return a.Code
	}
	return name
}

// name is the app's name as far as it can be read.
func (a App) name() string {
	p, err := policy.Parse(a.Policy)
	if err != nil || p.App == "" {
		return "sandbox"
	}
	return p.App
}

// Ids of apps inside.
const (
	workspaceID = 10000 // of apps that see a workspace: files come out as the folder's owner
	firstOther  = 10001
)

// appSpec is a checked App.
type appSpec struct {
	App
	policy policy.Policy
	digest string // of Policy
	uid    uint32
}

// app is a started process of an app.
type app struct {
	appSpec
	name   string        // of the process among all (policy.Instance)
	worker string        // policy.Main, or which
	own    policy.Policy // what holds for this process

	// Guarded by Sandbox.mu.
	enforced *link.Enforced
	exports  []protocol.Export
	ready    bool
	over     error         // why it will not run (again)
	left     bool          // the guest has forgotten it: its name is free
	gone     string        // how its last process ended
	changed  chan struct{} // closed and renewed at every change

	// running ends, with the reason, when the app is to be replaced.
	running context.Context
	cancel  context.CancelCauseFunc
}

// AppInfo describes an app of a sandbox.
type AppInfo struct {
	Name      string
	Policy    []byte
	Exports   []protocol.Export // of all its processes, sorted by name
	Ready     bool              // all its processes are
	Enforced  link.Enforced     // of its first process
	Err       error             // why it, or a process of it, does not run any more
	Processes []ProcessInfo     // in the order of policy.Processes
}

// ProcessInfo describes a process of an app.
type ProcessInfo struct {
	Name     string // policy.Instance
	Worker   string // policy.Main, or the worker's name
	Exports  []protocol.Export
	Ready    bool
	Enforced link.Enforced
	Err      error // why it does not run any more
}

// Apps describes the sandbox's apps, sorted by name.
func (s *Sandbox) Apps() (out []AppInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.apps)) {
		if a := s.apps[name]; a.worker == a.policy.Processes()[0] {
			out = append(out, s.describe(a.policy.App))
		}
	}
	return out
}

// processes returns an app's processes in the order of its policy. mu is held.
func (s *Sandbox) processes(name string) (all []*app) {
	for _, a := range s.apps {
		if a.policy.App == name {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *app) int { return strings.Compare(a.worker, b.worker) })
	return all
}

// describe describes an app. mu is held.
func (s *Sandbox) describe(name string) AppInfo {
	info := AppInfo{Name: name, Ready: true}
	for _, a := range s.processes(name) {
		p := ProcessInfo{Name: a.name, Worker: a.worker, Exports: a.exports, Ready: a.ready, Err: a.over}
		if a.enforced != nil {
			p.Enforced = *a.enforced
		}
		info.Policy, info.Ready = a.Policy, info.Ready && p.Ready
		info.Exports = append(info.Exports, p.Exports...)
		if info.Err == nil {
			info.Err = p.Err
		}
		info.Processes = append(info.Processes, p)
	}
	info.Enforced = info.Processes[0].Enforced
	slices.SortFunc(info.Exports, func(a, b protocol.Export) int { return strings.Compare(a.Name, b.Name) })
	return info
}

func (s *Sandbox) checkApps(in []App) (out []appSpec, err error) {
	for _, a := range in {
		spec, err := s.checkApp(a)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o appSpec) bool { return o.policy.App == spec.policy.App }) {
			return nil, fmt.Errorf("cannot start app %q twice in one sandbox", spec.policy.App)
		}
		out = append(out, spec)
	}
	return out, nil
}

// checkApp packs a code folder and compares the code with the policy.
func (s *Sandbox) checkApp(a App) (appSpec, error) {
	p, err := policy.Parse(a.Policy)
	if err != nil {
		return appSpec{}, err
	}
	if a.CodeDir != "" {
		if a.Image, err = pack(a.CodeDir); err != nil {
			return appSpec{}, fmt.Errorf("cannot start app %q: %w", p.App, err)
		}
	}
	code, err := s.codeDigest(p.App, a)
	if err != nil {
		return appSpec{}, fmt.Errorf("cannot start app %q: %w", p.App, err)
	}
	if err := checkSecrets(p, a.Secrets); err != nil {
		return appSpec{}, err
	}
	if code != p.Code {
		return appSpec{}, hint.Errorf("compile the policy for this code", "cannot start app %q: its policy is for code %s, this is %s", p.App, p.Code, code)
	}
	return appSpec{App: a, policy: p, digest: policy.Digest(a.Policy), uid: s.appID(p)}, nil
}

// checkSecrets names the line of the manifest that is about what is missing or
// not wanted.
func checkSecrets(p policy.Policy, values map[string]string) error {
	if err := p.CheckSecrets(values); err != nil {
		return hint.Errorf("its manifest says secrets: ["+strings.Join(p.Secrets, ", ")+"]", "cannot start app %q: %w", p.App, err)
	}
	return nil
}

// appID gives apps with a workspace the id whose files belong to the folder's
// owner, and every other app its own, where the machine has more than one. It
// does not depend on the order in which apps are named.
func (s *Sandbox) appID(p policy.Policy) uint32 {
	if s.o.Machine.Profile() == sandbox.ProfileNativeUser {
		return 0
	}
	for _, g := range p.Paths {
		if g.Path == "/workspace" || below(g.Path, "/workspace") {
			return workspaceID
		}
	}
	var names []string
	for _, a := range s.o.Apps {
		names = append(names, a.name())
	}
	slices.Sort(names)
	return firstOther + uint32(max(slices.Index(names, p.App), 0))
}

func pack(dir string) ([]byte, error) {
	var b strings.Builder
	if _, _, err := appimage.Build(&b, dir); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

func (s *Sandbox) machineApps() (out []machine.App) {
	for _, a := range s.o.Apps {
		if p, err := policy.Parse(a.Policy); err == nil {
			out = append(out, machine.App{Name: p.App, Processes: instances(p), Limits: p.Limits})
		}
	}
	return out
}

// instances are the names of an app's processes.
func instances(p policy.Policy) (names []string) {
	for _, worker := range p.Processes() {
		names = append(names, policy.Instance(p.App, worker))
	}
	return names
}

// launch sends the code of an app and asks for its processes.
func (s *Sandbox) launch(ctx context.Context, spec appSpec) ([]*app, error) {
	if err := s.sendCode(ctx, spec); err != nil {
		return nil, s.orReason(fmt.Errorf("cannot start app %q: %w", spec.policy.App, err))
	}
	return s.startApp(spec)
}

// startApp asks for every process of an app, all at once. They take the place of
// those that the app had.
func (s *Sandbox) startApp(spec appSpec) (all []*app, err error) {
	var starts []link.Start
	for _, worker := range spec.policy.Processes() {
		a := &app{appSpec: spec, worker: worker, name: policy.Instance(spec.policy.App, worker), changed: make(chan struct{})}
		if a.own, err = spec.policy.For(worker); err != nil {
			return nil, err
		}
		start, err := s.startOf(a)
		if err != nil {
			return nil, fmt.Errorf("cannot start app %q: %w", a.name, err)
		}
		a.running, a.cancel = context.WithCancelCause(context.Background())
		all, starts = append(all, a), append(starts, start)
	}
	s.mu.Lock()
	for _, old := range s.processes(spec.policy.App) {
		delete(s.apps, old.name)
	}
	for _, a := range all {
		s.apps[a.name] = a
	}
	s.mu.Unlock()
	for n := range starts {
		if err := s.send(link.Control{Start: &starts[n]}); err != nil {
			return all, s.orReason(fmt.Errorf("cannot start app %q: %w", all[n].name, err))
		}
	}
	return all, nil
}

// awaitReady waits until processes are ready or one will not be.
func (s *Sandbox) awaitReady(ctx context.Context, all []*app) error {
	for _, a := range all {
		if err := s.await(ctx, a, func() bool { return a.ready || s.o.Rehearse && a.enforced != nil }); err != nil {
			return err
		}
	}
	return nil
}

// await waits until done holds for an app (called with s.mu held), the app is
// over, or nothing can change any more.
func (s *Sandbox) await(ctx context.Context, a *app, done func() bool) error {
	for {
		s.mu.Lock()
		ok, over, changed := done(), a.over, a.changed
		s.mu.Unlock()
		switch {
		case ok:
			return nil
		case over != nil:
			return over
		}
		select {
		case <-changed:
		case <-s.ended:
			return s.orReason(fmt.Errorf("cannot start app %q", a.name))
		case <-ctx.Done():
			return fmt.Errorf("cannot start app %q: %w", a.name, context.Cause(ctx))
		}
	}
}

// orReason adds why the sandbox ended, if it did. A link that is closed is the
// first sign of that, so the reason is awaited.
func (s *Sandbox) orReason(err error) error {
	if errors.Is(err, link.ErrClosed) {
		timer := time.NewTimer(closeWithin + lastWords)
		defer timer.Stop()
		select {
		case <-s.ended:
		case <-timer.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w: %s", err, ErrEnded, s.reason)
}

// change applies f to an app under the lock and wakes who waits for it.
func (s *Sandbox) change(a *app, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// onEnforced lets an app execute if what the guest reports is what the host has
// compiled and the machine requires; else it is stopped before its first
// instruction.
func (s *Sandbox) onEnforced(a *app, e *link.Enforced) {
	if err := s.confirm(a, e); err != nil {
		s.giveUp(a, "confirm", err)
		return
	}
	if err := s.begun(a, e); err != nil {
		s.giveUp(a, "record", err)
		return
	}
	s.change(a, func() { a.enforced = e })
	s.emit(Event{App: e.App, Enforced: e})
	if s.o.Rehearse {
		return
	}
	if err := s.send(link.Control{Go: &link.Go{App: e.App}}); err != nil {
		s.log.Warn("cannot let an app go", "app", e.App, "error", err)
	}
}

func (s *Sandbox) confirm(a *app, e *link.Enforced) error {
	if e.PolicySHA256 != a.digest {
		return fmt.Errorf("the guest enforces policy sha256 %s, the host compiled %s", e.PolicySHA256, a.digest)
	}
	if booted := s.Booted().ABI; e.ABI != booted || e.ABI < 4 {
		return fmt.Errorf("the app is under Landlock ABI %d, the guest has %d, at least 4 are required", e.ABI, booted)
	}
	want, errata := s.o.Machine.Landlock(s.o.Image)
	if want != 0 && e.ABI != want {
		return fmt.Errorf("the app is under Landlock ABI %d, the machine promises %d", e.ABI, want)
	}
	if have := s.Booted().Errata; errata&^have != 0 {
		return fmt.Errorf("the guest's kernel has fixes of Landlock's errata %#x, the machine promises %#x", have, errata)
	}
	var missing []string
	for _, step := range sandbox.Confirmed(s.o.Machine.Profile()) {
		if !slices.Contains(e.Steps, step) && !slices.Contains(s.o.Ablate, step) {
			missing = append(missing, step)
		}
	}
	if missing != nil {
		return fmt.Errorf("machine %s requires what the guest has not done: %s", s.o.Machine.Name(), strings.Join(missing, ", "))
	}
	return nil
}

// onReady compares what an app offers with what its policy says.
func (s *Sandbox) onReady(a *app, r *link.Ready) {
	m, err := protocol.ParseAnnounce(r.Announce)
	if err != nil {
		s.giveUp(a, "ready", err)
		return
	}
	var names []string
	for _, e := range m.Exports {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if err := sameExports(names, a.own.Exports); err != nil {
		s.giveUp(a, "ready", err)
		return
	}
	s.change(a, func() { a.exports, a.ready, a.gone = m.Exports, true, "" })
	s.emit(Event{App: r.App, Ready: &Ready{Exports: m.Exports}})
}

// sameExports names both sides of a difference.
func sameExports(announced, declared []string) error {
	only := func(a, b []string) (out []string) {
		for _, x := range a {
			if !slices.Contains(b, x) {
				out = append(out, x)
			}
		}
		return out
	}
	var parts []string
	if x := only(announced, declared); x != nil {
		parts = append(parts, "in the code but not in the manifest: "+some(x))
	}
	if x := only(declared, announced); x != nil {
		parts = append(parts, "in the manifest but not in the code: "+some(x))
	}
	if parts != nil {
		return errors.New("its exports differ: " + strings.Join(parts, "; "))
	}
	return nil
}

// some joins the first of many names.
func some(names []string) string {
	const most = 20
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// giveUp stops an app for a reason that the host found.
func (s *Sandbox) giveUp(a *app, step string, why error) {
	name := a.name
	s.fail(a, &link.Failed{App: name, Step: step, Reason: why.Error()})
	if err := s.send(link.Control{Stop: &link.Stop{App: name, Reason: why.Error()}}); err != nil {
		s.log.Warn("cannot stop an app", "app", name, "error", err)
	}
}

// onFailed is the guest's last word about an app that it could not start.
func (s *Sandbox) onFailed(a *app, f *link.Failed) {
	s.change(a, func() { a.left = true })
	s.fail(a, f)
}

func (s *Sandbox) fail(a *app, f *link.Failed) {
	first := false
	s.change(a, func() {
		first = a.over == nil
		a.ready = false
		if first {
			a.over = startError(f)
		}
	})
	if first {
		s.emit(Event{App: f.App, Failed: f})
	}
}

// startError is one line; what the app printed meanwhile is its hint.
func startError(f *link.Failed) error {
	reason, printed, _ := strings.Cut(strings.TrimSpace(f.Reason), "; it printed:\n")
	reason = strings.ReplaceAll(reason, "\n", " ")
	if printed = strings.TrimSpace(printed); printed != "" {
		printed = "it printed:\n  " + strings.ReplaceAll(printed, "\n", "\n  ")
	}
	return hint.Errorf(printed, "cannot start app %q: step %q: %s", f.App, f.Step, reason)
}

func (s *Sandbox) onExited(a *app, e *link.Exited) {
	if hit := s.limitHit(a, e.Status); hit != "" {
		e.Status += " (" + hit + ")"
	}
	if a.running.Err() == nil { // else its calls ended before it did
		s.cut(a, fmt.Errorf("app %q ended: %s", a.name, e.Status))
	}
	s.change(a, func() {
		a.ready, a.gone, a.left = false, e.Status, e.RestartMillis == 0
		if e.RestartMillis == 0 && a.over == nil {
			a.over = fmt.Errorf("app %q ended: %s", e.App, e.Status)
		}
	})
	s.emit(Event{App: e.App, Exited: e})
}

// limitHit asks the machine, where the guest does not know it, which limit a
// process had hit when it ended.
func (s *Sandbox) limitHit(a *app, status string) string {
	w, ok := s.instance.(machine.LimitWatcher)
	if !ok {
		return ""
	}
	return w.LimitHit(a.policy.App, a.name, status == "signal: killed")
}

// settleApps tells every waiter that nothing will come any more.
func (s *Sandbox) settleApps() {
	s.mu.Lock()
	all := make([]*app, 0, len(s.apps))
	for _, a := range s.apps {
		all = append(all, a)
	}
	s.mu.Unlock()
	for _, a := range all {
		s.change(a, func() {
			a.ready, a.left = false, true
			if a.over == nil {
				a.over = fmt.Errorf("cannot run app %q: %w: %s", a.name, ErrEnded, s.reason)
			}
		})
	}
}

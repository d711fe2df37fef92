package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/appbuild"
	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/host/auditor"
	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/hostexecuted"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/monitor"
	"github.com/berthos/berth/init/policy"
)

// runFlags say what to run and on what; dev and os up have them.
type runFlags struct {
	machine    string
	apps       []string
	workspaces []string
	exclude    []string
	secrets    []string
}

func (f *runFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.machine, "machine", "auto", "machine to boot: auto, qemu or native")
	cmd.Flags().StringSliceVar(&f.apps, "apps", nil, "folders of apps that run in one sandbox, separated by commas")
	cmd.Flags().StringArrayVar(&f.workspaces, "workspace", nil, "folder that the apps may be granted parts of, DIR or DIR:ro; may be repeated")
	cmd.Flags().StringArrayVar(&f.exclude, "exclude", nil, "name (or pattern of one) that does not exist for the apps, such as .env; may be repeated")
	cmd.Flags().StringArrayVar(&f.secrets, "secret", nil, "secret that an app declares: NAME (from the environment), NAME=- (from stdin) or NAME=@FILE; may be repeated")
}

// dirs are the folders of the apps.
func (f *runFlags) dirs(w World, args []string) ([]string, error) {
	switch {
	case len(args) > 0 && len(f.apps) > 0:
		return nil, fail(ExitUsage, "list all of them: --apps "+strings.Join(append(args, f.apps...), ","), "cannot take both an app's folder and --apps")
	case len(args) > 0:
		return args, nil
	case len(f.apps) > 0:
		return f.apps, nil
	}
	return []string{w.Dir}, nil
}

// launch is a sandbox in the making and, once started, the apps in it.
type launch struct {
	w       World
	f       runFlags
	secrets map[string]string
	how     string // the machine's description

	mu   sync.Mutex // guards apps
	apps []*launched
}

// launched is one app of it.
type launched struct {
	dir string
	app *appbuild.App
}

func (l *launch) say(format string, args ...any) {
	fmt.Fprintln(l.w.Err, visibleLines(fmt.Sprintf(format, args...)))
}

// prepare builds the apps and returns what a monitor needs to run them.
func (l *launch) prepare(ctx context.Context, dirs []string) (monitor.Options, error) {
	var o monitor.Options
	var err error
	if l.secrets, err = readSecrets(ctx, l.w, l.f.secrets); err != nil {
		return o, err
	}
	for _, dir := range dirs {
		app, err := l.build(ctx, dir)
		if err != nil {
			return o, err
		}
		if l.find(app.Manifest.Name) != nil {
			return o, fail(ExitUsage, "give each app a name of its own", "cannot start app %q twice in one sandbox", app.Manifest.Name)
		}
		l.apps = append(l.apps, &launched{dir: dir, app: app})
		for _, n := range app.Notes {
			l.say("note: %s:%d: %s", app.File, n.Line, n.Text)
		}
		run, err := l.admit(app)
		if err != nil {
			return o, err
		}
		o.Apps = append(o.Apps, run)
	}
	if err := l.unusedSecrets(); err != nil {
		return o, err
	}
	if o.Start, err = l.spec(ctx); err != nil {
		return o, err
	}
	folder, err := audit.Folder()
	if err != nil {
		return o, err
	}
	o.Audit, err = auditor.Start(folder)
	return o, err
}

// admit is where a policy is about to be started, at first and at every reload:
// what may not start is refused here, and nothing goes to a monitor by another way.
func (l *launch) admit(app *appbuild.App) (monitor.App, error) {
	run := monitor.App{Policy: app.Encoded, Manifest: app.File, Image: app.Image}
	var err error
	run.Secrets, err = l.secretsOf(app)
	return run, err
}

// spec says where to run it.
func (l *launch) spec(ctx context.Context) (s monitor.Spec, err error) {
	img, err := openImage()
	if err != nil {
		return s, err
	}
	choice, err := chooseMachine(ctx, l.w, l.f.machine, img)
	if err != nil {
		return s, err
	}
	rt, err := runtimedir.Open(runtimedir.Search{})
	if err != nil {
		return s, err
	}
	l.how = choice.Machine.Describe()
	l.say("machine: %s (%s)", l.how, choice.Reason)
	s = monitor.Spec{Machine: choice.Machine.Name(), ImageDir: img.Dir, Image: img.Digest, Runtime: rt.Path()}
	if s.Machine == machine.QEMU {
		s.Accel = choice.Machine.(*qemu.Machine).Accel()
	}
	if s.HostExecuted, err = hostexecuted.Load(); err != nil {
		return s, err
	}
	if s.Shares, err = l.shares(); err != nil {
		return s, err
	}
	for _, share := range s.Shares {
		if share.ReadOnly {
			continue
		}
		if err := files.CheckOwn(share.HostDir, s.Runtime); err != nil {
			return s, err
		}
	}
	return s, nil
}

// find returns an app by name.
func (l *launch) find(name string) *launched {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.apps, func(a *launched) bool { return a.app.Manifest.Name == name })
	if i < 0 {
		return nil
	}
	return l.apps[i]
}

// current is what runs of an app.
func (l *launch) current(a *launched) *appbuild.App {
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.app
}

// ready prints what runs, where, and what enforces it.
func (l *launch) ready(s monitor.Started, states []monitor.AppState, took time.Duration) {
	for _, state := range states {
		a := l.find(state.Name)
		if a == nil {
			continue
		}
		app := l.current(a)
		l.say("ready: %s %s on %s in %d ms, sandbox %s", app.Manifest.Name, app.Manifest.Version, l.how, took.Milliseconds(), s.ID)
		l.say("  enforced: %s; Landlock ABI %d; policy sha256 %s", strings.Join(state.Enforced.Steps, ", "), state.Enforced.ABI, state.Enforced.PolicySHA256)
		for _, weak := range state.Enforced.Weaker {
			l.say("  weaker here: %s", weak)
		}
		for _, sh := range s.Shares {
			if sh.App != "" && sh.App != state.Name {
				continue
			}
			mode := "read and write"
			if sh.ReadOnly {
				mode = "read-only"
			}
			l.say("  workspace: %s at %s (%s)", visible(sh.HostDir), strings.Join(append([]string{sh.Path}, sh.Aliases...), " and "), mode)
		}
		l.say("  call it: berth rpc %s --export NAME --input JSON   exports: %s", app.Manifest.Name, strings.Join(app.Policy.AllExports(), ", "))
	}
	for _, n := range s.Notes {
		l.say("  note: %s", n)
	}
}

// startFailure gives a failed start its exit code.
func startFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return &failure{code: ExitMachine, err: err}
}

// absolute is a path that means the same in another working directory.
func absolute(w World, dir string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.Dir, dir)
	}
	return filepath.Clean(dir)
}

// belowWorkspace reports whether an app may use a workspace at all.
func belowWorkspace(p policy.Policy) bool {
	for _, name := range p.Processes() {
		one, err := p.For(name)
		if err != nil {
			return true
		}
		if slices.ContainsFunc(one.Paths, func(g policy.Path) bool { return policy.Below(g.Path, "/workspace") }) {
			return true
		}
	}
	return false
}

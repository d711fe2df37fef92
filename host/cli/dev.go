package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/appbuild"
	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/hostexecuted"
	"github.com/berthos/berth/host/sandbox"
)

type devFlags struct {
	machine    string
	workspaces []string
	exclude    []string
	noReload   bool
}

func newDev(w World) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "Build an app, run it in a sandbox, reload it on save",
		Long: `Builds the app in DIR (default: this folder), boots a sandbox, starts the app
under its manifest and shows what it prints, until Ctrl-C. When a file of the
app changes it is built and started again in the same sandbox.

Without --workspace the app has a private folder that outlives the sandbox; its
place is printed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := w.Dir
			if len(args) == 1 {
				dir = args[0]
			}
			return newDevRun(w, f).run(cmd.Context(), dir)
		},
	}
	cmd.Flags().StringVar(&f.machine, "machine", "auto", "machine to boot: auto, qemu or native")
	cmd.Flags().StringArrayVar(&f.workspaces, "workspace", nil, "folder that the app may be granted parts of, DIR or DIR:ro; may be repeated")
	cmd.Flags().StringArrayVar(&f.exclude, "exclude", nil, "name (or pattern of one) that does not exist for the app, such as .env; may be repeated")
	cmd.Flags().BoolVar(&f.noReload, "no-reload", false, "do not watch the app's files")
	return cmd
}

// devRun is one run of berth dev.
type devRun struct {
	w World
	f devFlags

	mu  sync.Mutex // guards app
	app *appbuild.App
	sb  *sandbox.Sandbox

	how      string // the machine's description
	image    string // digest of the image index
	listener *net.UnixListener
}

func newDevRun(w World, f devFlags) *devRun { return &devRun{w: w, f: f} }

func (r *devRun) say(format string, args ...any) {
	fmt.Fprintln(r.w.Err, visibleLines(fmt.Sprintf(format, args...)))
}

func (r *devRun) run(ctx context.Context, dir string) error {
	app, err := appbuild.Build(ctx, dir, r.w.Err)
	if err != nil {
		return err
	}
	r.app = app
	for _, n := range app.Notes {
		r.say("note: %s:%d: %s", app.File, n.Line, n.Text)
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.stop()
	return r.serve(ctx, dir)
}

// start boots the sandbox with the app.
func (r *devRun) start(ctx context.Context) error {
	img, err := openImage()
	if err != nil {
		return err
	}
	choice, err := chooseMachine(ctx, r.w, r.f.machine, img)
	if err != nil {
		return err
	}
	r.how, r.image = choice.Machine.Describe(), img.Digest
	r.say("machine: %s (%s)", r.how, choice.Reason)
	shares, err := r.shares()
	if err != nil {
		return err
	}
	protected, err := hostexecuted.Load()
	if err != nil {
		return err
	}
	r.sb, err = sandbox.Start(ctx, sandbox.Options{
		Machine: choice.Machine,
		Image:   img,

		HostExecuted: protected,

		Apps:    []sandbox.App{{Policy: r.app.Encoded, Image: r.app.Image}},
		Shares:  shares,
		OnEvent: r.event,
	})
	if err != nil {
		return &failure{code: ExitMachine, err: err}
	}
	if r.listener, err = control.Listen(r.sb.Dir()); err != nil {
		r.stop()
		return err
	}
	r.ready(time.Since(r.sb.Started())) // whoever reads this may call at once
	return nil
}

func (r *devRun) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.sb.Close(ctx); err != nil {
		r.say("berth: %v", err)
	}
}

// serve follows the sandbox until ctx or the sandbox ends.
func (r *devRun) serve(ctx context.Context, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() {
		if err := control.Serve(ctx, r.listener, r, nil); err != nil {
			r.say("berth: %v", err)
		}
	})
	tasks.Go(func() {
		for record := range r.sb.Logs(ctx) {
			printRecord(r.w.Err, record, false)
		}
	})
	if !r.f.noReload && r.mayReload(dir) {
		tasks.Go(func() {
			if err := watch(ctx, dir, func() { r.reload(ctx, dir) }); err != nil {
				r.say("note: reload on save is off: %v", err)
			}
		})
	}
	select {
	case <-ctx.Done():
		r.say("stopping")
		return nil
	case <-r.sb.Done():
		if err := r.sb.Err(); err != nil {
			return err
		}
		return errors.New("the sandbox ended")
	}
}

// reload builds the app again and replaces the running one.
func (r *devRun) reload(ctx context.Context, dir string) {
	began := time.Now()
	app, err := appbuild.Build(ctx, dir, r.w.Err)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.say("not reloaded: %v", err)
		if advice := hint.Of(err); advice != "" {
			r.say("hint: %s", advice)
		}
		return
	}
	if string(app.Encoded) == string(r.current().Encoded) {
		return // the same code and policy
	}
	if app.Manifest.Name != r.current().Manifest.Name {
		r.say("not reloaded: the app's name changed to %q; start berth dev again", app.Manifest.Name)
		return
	}
	r.mu.Lock()
	r.app = app
	r.mu.Unlock()
	if err := r.sb.Replace(ctx, sandbox.App{Policy: app.Encoded, Image: app.Image}); err != nil {
		r.say("reload failed: %v", err)
		return
	}
	r.ready(time.Since(began))
}

func (r *devRun) current() *appbuild.App {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.app
}

// ready prints what runs, where, and what enforces it.
func (r *devRun) ready(took time.Duration) {
	app := r.current()
	info := r.info()
	r.say("ready: %s %s on %s in %d ms, sandbox %s", app.Manifest.Name, app.Manifest.Version, r.how, took.Milliseconds(), r.sb.ID())
	r.say("  enforced: %s; Landlock ABI %d; policy sha256 %s", strings.Join(info.Enforced.Steps, ", "), info.Enforced.ABI, info.Enforced.PolicySHA256)
	for _, weak := range info.Enforced.Weaker {
		r.say("  weaker here: %s", weak)
	}
	for _, n := range r.sb.Notes() {
		r.say("  note: %s", n)
	}
	for _, s := range r.sb.Shares() {
		mode := "read and write"
		if s.ReadOnly {
			mode = "read-only"
		}
		r.say("  workspace: %s at %s (%s)", visible(s.HostDir), strings.Join(append([]string{s.Path}, s.Aliases...), " and "), mode)
	}
	r.say("  call it: berth rpc %s --export NAME --input JSON   exports: %s", app.Manifest.Name, strings.Join(app.Policy.Exports, ", "))
}

// info returns what the sandbox says about the app.
func (r *devRun) info() sandbox.AppInfo {
	for _, a := range r.sb.Apps() {
		if a.Name == r.current().Manifest.Name {
			return a
		}
	}
	return sandbox.AppInfo{}
}

// event prints what is worth a line while the sandbox runs.
func (r *devRun) event(e sandbox.Event) {
	switch {
	case e.Exited != nil && e.Exited.RestartMillis > 0:
		r.say("app %s ended (%s); starting it again in %d ms", e.App, visible(e.Exited.Status), e.Exited.RestartMillis)
	case e.Exited != nil:
		r.say("app %s ended (%s)", e.App, visible(e.Exited.Status))
	case e.Failed != nil:
		r.say("app %s does not run: %s: %s", e.App, visible(e.Failed.Step), visible(e.Failed.Reason))
	case e.Name != nil:
		r.say("%s", visible(e.Name.String()))
	case e.Ended != nil && e.Ended.Console != "":
		r.say("the guest's last lines:")
		for line := range strings.Lines(e.Ended.Console) {
			r.say("  %s", visible(strings.TrimRight(line, "\r\n")))
		}
	}
}

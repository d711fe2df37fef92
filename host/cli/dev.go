package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/monitor"
	"github.com/berthos/berth/init/link"
)

func newDev(w World) *cobra.Command {
	r := &devRun{launch: launch{w: w}}
	cmd := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "Build apps, run them in a sandbox, reload them on save",
		Long: `Builds the app in DIR (default: this folder), boots a sandbox, starts the app
under its manifest and shows what it prints, until Ctrl-C. When a file of the
app changes it is built and started again in the same sandbox. With --apps
several apps run in one sandbox, each under its own manifest.

Without --workspace each app has a private folder that outlives the sandbox; its
place is printed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := r.f.dirs(w, args)
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), dirs)
		},
	}
	r.f.add(cmd)
	cmd.Flags().BoolVar(&r.noReload, "no-reload", false, "do not watch the apps' files")
	return cmd
}

// devRun is one run of berth dev: the parent of a monitor. It reads nothing of
// the guest but what the monitor reports.
type devRun struct {
	launch
	noReload bool
	m        *monitor.Monitor
	replace  sync.Mutex // held during a reload: one at a time
}

func (r *devRun) run(ctx context.Context, dirs []string) error {
	o, err := r.prepare(ctx, dirs)
	if err != nil {
		return err
	}
	o.OnEvent = r.event
	o.OnLog = func(record link.LogRecord) { printRecord(r.w.Err, record, false) }
	if r.m, err = monitor.Start(ctx, o); err != nil {
		return startFailure(ctx, err)
	}
	defer r.stop()
	s := r.m.State()
	r.ready(s, s.Apps, time.Since(s.Since)) // whoever reads this may call at once
	return r.serve(ctx)
}

// stopWithin is how long the monitor may take to end the sandbox.
const stopWithin = 5 * time.Second

func (r *devRun) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := r.m.Close(ctx); err != nil {
		r.say("berth: %v", err)
	}
}

// serve follows the monitor until ctx or the sandbox ends.
func (r *devRun) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	for _, a := range r.apps {
		if r.noReload || !r.mayReload(a.dir) {
			continue
		}
		tasks.Go(func() {
			if err := watch(ctx, a.dir, func() { r.reload(ctx, a) }); err != nil {
				r.say("note: reload on save is off for app %s: %v", a.app.Manifest.Name, err)
			}
		})
	}
	select {
	case <-ctx.Done():
		r.say("stopping")
		return nil
	case <-r.m.Done():
		if err := r.m.Err(); err != nil {
			return err
		}
		return errors.New("the sandbox ended")
	}
}

// reload builds an app again and replaces the running one.
func (r *devRun) reload(ctx context.Context, a *launched) {
	began := time.Now()
	app, err := r.build(ctx, a.dir)
	if ctx.Err() != nil {
		return
	}
	r.replace.Lock()
	defer r.replace.Unlock()
	was := r.current(a)
	if err == nil && app.Manifest.Name != was.Manifest.Name {
		err = fmt.Errorf("the app's name changed to %q; start berth dev again", app.Manifest.Name)
	}
	if err == nil && string(app.Encoded) == string(was.Encoded) {
		return // the same code and policy
	}
	var run monitor.App
	if err == nil {
		run, err = r.admit(app)
	}
	if err != nil {
		r.complain("not reloaded: ", was.Manifest.Name, err)
		return
	}
	r.mu.Lock()
	a.app = app
	r.mu.Unlock()
	state, err := r.m.Replace(ctx, run)
	if err != nil {
		r.complain("reload failed: ", was.Manifest.Name, err)
		return
	}
	s := r.m.State()
	s.Notes = nil // as before
	r.ready(s, []monitor.AppState{state}, time.Since(began))
}

// complain prints an error that ends nothing.
func (r *devRun) complain(what, app string, err error) {
	if len(r.apps) > 1 {
		what = app + ": " + what
	}
	r.say("%s%v", what, err)
	if advice := hint.Of(err); advice != "" {
		r.say("hint: %s", advice)
	}
}

// event prints what is worth a line while the sandbox runs.
func (r *devRun) event(e monitor.Event) {
	for _, line := range e.Lines() {
		r.say("%s", line)
	}
}

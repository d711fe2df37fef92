package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/monitor"
)

// defaultName is that of the long-lived sandbox if none is given.
const defaultName = "default"

var osName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func newOS(w World) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "os",
		Short: "A long-lived sandbox: up, status, down",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newOSUp(w), newOSStatus(w), newOSDown(w))
	return cmd
}

func newOSUp(w World) *cobra.Command {
	l := launch{w: w}
	var name string
	cmd := &cobra.Command{
		Use:   "up [DIR]",
		Short: "Start a sandbox that outlives this command and the terminal",
		Long: `Builds apps as berth dev does, boots a sandbox and starts them in it, then
returns. The sandbox goes on until berth os down. What happens in it is written
to a log, whose place is printed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := l.f.dirs(w, args)
			if err != nil {
				return err
			}
			return osUp(cmd.Context(), &l, name, dirs)
		},
	}
	l.f.add(cmd)
	nameFlag(cmd, &name)
	return cmd
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", defaultName, "name of the sandbox")
}

// osFiles are what a long-lived sandbox has outside of its runtime folder.
type osFiles struct{ lock, log, before *os.File }

func (f osFiles) close() {
	for _, file := range []*os.File{f.lock, f.log, f.before} {
		if file != nil {
			file.Close()
		}
	}
}

// openOS takes the name, as long as the monitor lives, and opens the log.
func openOS(rt *runtimedir.Root, name string) (f osFiles, err error) {
	if !osName.MatchString(name) {
		return f, fail(ExitUsage, "a-z, 0-9 and dashes, at most 32", "cannot use %q as the name of a sandbox", name)
	}
	dir := filepath.Join(rt.Path(), "os")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return f, fmt.Errorf("cannot make the folder of long-lived sandboxes: %w", err)
	}
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	if f.lock, err = os.OpenFile(filepath.Join(dir, name+".lock"), flags, 0o600); err != nil {
		return f, fmt.Errorf("cannot take the name %q: %w", name, err)
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.close()
		return f, fail(ExitFailed, fmt.Sprintf("look at it: berth os status; end it: berth os down --name %s; or start another: --name NAME", name), "cannot start sandbox %q: it runs already", name)
	}
	if f.log, err = os.OpenFile(filepath.Join(dir, name+".log"), flags|os.O_APPEND|os.O_TRUNC, 0o600); err == nil {
		f.before, err = os.OpenFile(filepath.Join(dir, name+".log.1"), flags|os.O_TRUNC, 0o600)
	}
	if err != nil {
		f.close()
		return f, fmt.Errorf("cannot open the log: %w", err)
	}
	return f, nil
}

func osUp(ctx context.Context, l *launch, name string, dirs []string) error {
	rt, err := runtimedir.Open(runtimedir.Search{})
	if err != nil {
		return err
	}
	files, err := openOS(rt, name)
	if err != nil {
		return err
	}
	defer files.close()
	o, err := l.prepare(ctx, dirs)
	if err != nil {
		return err
	}
	o.Start.Name, o.Start.Log = name, files.log.Name()
	o.Log, o.Hold = files.log, []*os.File{files.before, files.lock}
	m, err := monitor.Start(ctx, o)
	if err != nil {
		l.say("log: %s", files.log.Name())
		return startFailure(ctx, err)
	}
	if err := m.Detach(); err != nil {
		return errors.Join(err, m.Close(ctx))
	}
	s := m.State()
	l.ready(s, s.Apps, time.Since(s.Since))
	l.say("up: sandbox %q goes on; its log is %s; end it: berth os down%s", name, files.log.Name(), nameArg(name))
	return nil
}

// nameArg is how other commands are told the name.
func nameArg(name string) string {
	if name == defaultName {
		return ""
	}
	return " --name " + name
}

func newOSStatus(w World) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List long-lived sandboxes and their apps",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return osStatus(cmd.Context(), w, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list as JSON")
	return cmd
}

// osState is a long-lived sandbox as scripts see it.
type osState struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	PID     int       `json:"pid"`
	Machine string    `json:"machine"`
	Image   string    `json:"image"`
	Started time.Time `json:"started"`
	Log     string    `json:"log"`
	Apps    []osApp   `json:"apps"`
}

type osApp struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"`
}

func osStatus(ctx context.Context, w World, asJSON bool) error {
	_, found, silent, err := running(ctx)
	if err != nil {
		return err
	}
	states := []osState{}
	for _, d := range found {
		if d.Name == "" {
			continue
		}
		s := osState{Name: d.Name, ID: d.ID, PID: d.PID, Machine: d.Machine, Image: d.Image, Started: d.Started, Log: d.Log, Apps: []osApp{}}
		for _, a := range d.Apps {
			s.Apps = append(s.Apps, osApp{a.Name, a.Ready, a.Error})
		}
		states = append(states, s)
	}
	for _, id := range silent {
		fmt.Fprintf(w.Err, "sandbox %s does not answer\n", visible(id))
	}
	if asJSON {
		return printJSON(w.Out, states)
	}
	if len(states) == 0 {
		fmt.Fprintln(w.Err, "no long-lived sandbox is running")
	}
	for _, s := range states {
		s.print(w)
	}
	return nil
}

func (s osState) print(w World) {
	fmt.Fprintf(w.Out, "%s: %s on %s, pid %d, up since %s\n", s.Name, s.ID, s.Machine, s.PID, s.Started.Local().Format(time.DateTime))
	fmt.Fprintf(w.Out, "  log %s\n", visible(s.Log))
	for _, a := range s.Apps {
		switch {
		case a.Ready:
			fmt.Fprintf(w.Out, "  app %s: ready\n", visible(a.Name))
		case a.Error != "":
			fmt.Fprintf(w.Out, "  app %s: %s\n", visible(a.Name), visible(a.Error))
		default:
			fmt.Fprintf(w.Out, "  app %s: starting\n", visible(a.Name))
		}
	}
}

func newOSDown(w World) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a long-lived sandbox",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return osDown(cmd.Context(), w, name) },
	}
	nameFlag(cmd, &name)
	return cmd
}

// osDown returns when nothing of the sandbox is left.
func osDown(ctx context.Context, w World, name string) error {
	rt, err := runtimedir.Open(runtimedir.Search{})
	if err != nil {
		return err
	}
	client, d, err := findOS(ctx, rt, name)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	err = client.Stop(limited)
	if err == nil {
		err = awaitName(limited, rt, name)
	}
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = monitor.EndByForce(d.PID, nil, rt.Path())
	}
	if err != nil {
		return fmt.Errorf("cannot end sandbox %q in order: %w", name, err)
	}
	fmt.Fprintf(w.Err, "down: sandbox %q ended\n", name)
	return nil
}

// findOS finds the sandbox of a name. The kernel, not the sandbox, says which
// process serves it.
func findOS(ctx context.Context, rt *runtimedir.Root, name string) (control.Client, control.Description, error) {
	clients, found, silent, err := control.Find(ctx, rt.Sandboxes())
	if err != nil {
		return control.Client{}, control.Description{}, err
	}
	var names []string
	for i, d := range found {
		if d.Name == name {
			d.PID, err = clients[i].PID(ctx)
			return clients[i], d, err
		}
		if d.Name != "" {
			names = append(names, d.Name)
		}
	}
	advice := "start it: berth os up" + nameArg(name)
	if len(names) > 0 {
		advice = "running: " + strings.Join(names, ", ")
	}
	if len(silent) > 0 {
		advice = "sandbox " + strings.Join(silent, ", ") + " does not answer; its process may be stopped: kill -CONT"
	}
	return control.Client{}, control.Description{}, fail(ExitNotFound, advice, "cannot find a long-lived sandbox %q", name)
}

// awaitName waits until the monitor, whose end is the last, has let go of the name.
func awaitName(ctx context.Context, rt *runtimedir.Root, name string) error {
	f, err := os.OpenFile(filepath.Join(rt.Path(), "os", name+".lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // ends with the sandbox, or with this program
		defer f.Close()
		done <- unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

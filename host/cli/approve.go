package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/explain"
	"github.com/berthos/berth/host/appbuild"
	"github.com/berthos/berth/host/grant"
	"github.com/berthos/berth/init/policy"
)

type approveFlags struct {
	readOnly       bool
	exports, paths []string
}

func newApprove(w World) *cobra.Command {
	var f approveFlags
	cmd := &cobra.Command{
		Use:   "approve [DIR]",
		Short: "Let an app do what its manifest asks for, after reading it",
		Long: `Shows what the manifest of the app in DIR (default: this folder) allows beyond
what was approved before, asks, and records the answer in your grants. Only from
a terminal: nobody but you can approve.

With --read-only, --exports and --paths the app gets less than its manifest asks
for. What a former approval took away stays away unless a flag says otherwise.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return approve(cmd, w, f, dirOf(w, args))
		},
	}
	cmd.Flags().BoolVar(&f.readOnly, "read-only", false, "the app can not change the folders that are shared with it")
	cmd.Flags().StringSliceVar(&f.exports, "exports", nil, "only these exports can be called; all: every one")
	cmd.Flags().StringSliceVar(&f.paths, "paths", nil, "only these folders, such as /workspace/docs; all: every one")
	return cmd
}

func dirOf(w World, args []string) string {
	if len(args) == 0 {
		return w.Dir
	}
	return absolute(w, args[0])
}

func approve(cmd *cobra.Command, w World, f approveFlags, dir string) error {
	if !terminal(w.In) || !terminal(w.Err) {
		return fail(ExitUsage, "run it yourself, in a terminal", "cannot approve: the answer must come from a terminal")
	}
	p, file, err := compiled(dir)
	if err != nil {
		return err
	}
	known, err := grant.Look(dir, p.App)
	if err != nil {
		return err
	}
	n := f.narrowing(cmd, known.Narrowing)
	if err := n.Check(p); err != nil {
		return &failure{code: ExitUsage, err: err}
	}
	if ok, err := showApproval(w, p, known, n); err != nil || ok {
		return err
	}
	yes, err := ask(cmd.Context(), w, "approve? type yes: ")
	if err != nil {
		return err
	}
	if !yes {
		return fail(ExitDenied, "", "not approved: nothing was recorded")
	}
	if again, _, err := compiled(dir); err != nil || !sameGrant(again, p) {
		return fail(ExitFailed, "run it again", "cannot approve: %s changed meanwhile", file)
	}
	record, err := grant.Approve(dir, p, n)
	if err != nil {
		return err
	}
	fmt.Fprintln(w.Err, visibleLines("approved: "+record))
	return nil
}

// narrowing changes the former one as the flags say.
func (f approveFlags) narrowing(cmd *cobra.Command, n grant.Narrowing) grant.Narrowing {
	list := func(name string, given []string, before []string) []string {
		switch {
		case !cmd.Flags().Changed(name):
			return before
		case len(given) == 1 && given[0] == "all":
			return nil
		}
		return append([]string{}, given...)
	}
	if cmd.Flags().Changed("read-only") {
		n.ReadOnly = f.readOnly
	}
	n.Exports, n.Paths = list("exports", f.exports, n.Exports), list("paths", f.paths, n.Paths)
	return n
}

// showApproval prints what would be approved. It returns true if there is
// nothing to ask.
func showApproval(w World, p policy.Policy, known grant.Known, n grant.Narrowing) (done bool, err error) {
	now, err := grant.Apply(p, n)
	if err != nil {
		return false, err
	}
	if !known.There {
		fmt.Fprintln(w.Err, visibleLines(strings.TrimRight(now.String(), "\n")))
		return false, nil
	}
	before, err := grant.Apply(known.Approved, known.Narrowing)
	if err != nil {
		before = known.Approved
	}
	changes := explain.Diff(before, now)
	if len(changes) == 0 && sameGrant(known.Approved, p) {
		fmt.Fprintln(w.Err, "nothing to approve: it allows what was approved before")
		return true, nil
	}
	fmt.Fprintf(w.Err, "app %s, compared with what was approved:\n", p.App)
	for _, c := range changes {
		fmt.Fprintln(w.Err, visibleLines("  "+c.String()))
	}
	if len(changes) == 0 {
		fmt.Fprintln(w.Err, "  nothing that your narrowing does not take away")
	}
	return false, nil
}

func sameGrant(a, b policy.Policy) bool {
	x, err := grant.Digest(a)
	y, err2 := grant.Digest(b)
	return err == nil && err2 == nil && x == y
}

// ask prints a question and reports whether the answer is yes.
func ask(ctx context.Context, w World, question string) (bool, error) {
	fmt.Fprint(w.Err, question)
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // a read of a terminal cannot be interrupted
		line, err := bufio.NewReader(w.In).ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case a := <-got:
		return a.err == nil && strings.TrimSpace(a.line) == "yes", nil
	}
}

// terminal reports whether f is one.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// compiled returns the policy that the manifest of an app's folder asks for,
// without building anything.
func compiled(dir string) (policy.Policy, string, error) {
	m, file, err := appbuild.Read(dir)
	if err != nil {
		return policy.Policy{}, file, err
	}
	p, _, err := compile.Compile(m, appbuild.Unbuilt)
	return p, file, err
}

// build builds the app in dir and narrows it to what the user approved. What was
// not approved is not even built: a manifest also names the command for that.
func (l *launch) build(ctx context.Context, dir string) (*appbuild.App, error) {
	p, _, err := compiled(dir)
	if err != nil {
		return nil, err
	}
	if err := grant.Permits(dir, p); err != nil {
		return nil, &failure{code: ExitMachine, err: err}
	}
	app, err := appbuild.Build(ctx, dir, l.w.Err)
	if err != nil {
		return nil, err
	}
	narrowed, notes, err := grant.Resolve(dir, app.Policy)
	if err != nil {
		return nil, &failure{code: ExitMachine, err: err}
	}
	for _, n := range notes {
		l.say("%s", n)
	}
	app.Policy = narrowed
	app.Encoded, err = narrowed.Encode()
	return app, err
}

// Package cli owns berth's commands: what a user types, reads and scripts
// against. It glues the packages of host/ and holds no mechanism of its own.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/hint"
)

// World is everything a command may touch, so that every command can be
// tested as a function. The zero value of a field is not usable except Env.
type World struct {
	Args    []string // without the program name
	In      io.Reader
	Out     io.Writer // results and protocols only
	Err     io.Writer // everything meant for people
	Dir     string    // working directory
	Version string    // of berth
}

// Exit codes. Scripts may rely on them; docs/cli.md lists them.
const (
	ExitOK       = 0
	ExitFailed   = 1 // something else went wrong; the message says what
	ExitUsage    = 2 // the command line or its input is not understood
	ExitDenied   = 3 // the sandbox refused the call
	ExitNotFound = 4 // no such sandbox, app or export
	ExitApp      = 5 // the app ran and reported an error of its own
	ExitMachine  = 6 // nothing was started: no machine, no image, or the start was refused
	ExitWider    = 7 // berth policy diff: the second manifest allows more
	ExitAlone    = 8 // berth audit verify: consistent, but with no head from elsewhere to compare with
)

// failure is an error with an exit code.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail words an error; an empty hint keeps the one of what it wraps.
func fail(code int, advice, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if advice != "" {
		err = hint.Errorf(advice, "%w", err)
	}
	return &failure{code: code, err: err}
}

// Run executes one command line and returns its exit code.
func Run(ctx context.Context, w World) int {
	root := newRoot(w)
	root.SetArgs(w.Args)
	root.SetIn(w.In)
	root.SetOut(w.Out)
	root.SetErr(w.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	return report(w, err)
}

// report prints err as one line and its hint as the next.
func report(w World, err error) int {
	var f *failure
	code := ExitFailed
	if errors.As(err, &f) {
		code = f.code
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(w.Err, "berth: "+visibleLines(msg))
	}
	if advice := hint.Of(err); advice != "" {
		fmt.Fprintln(w.Err, "hint: "+visibleLines(advice))
	}
	return code
}

func newRoot(w World) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Run an agent's tools in a sandbox whose limits the kernel enforces",
		Long: `Berth runs each tool of an agent in a sandbox and compiles its manifest
(berth.yml) into kernel rules before the tool's first instruction runs.

Start with "berth doctor", which says what this host can enforce.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fail(ExitUsage, "see: "+cmd.CommandPath()+" --help", "%w", err)
	})
	root.AddCommand(newDoctor(w), newDev(w), newOS(w), newRPC(w), newLogs(w), newImage(w), newPolicy(w), newWhy(w), newApprove(w), newAudit(w), newTest(w), newVersion(w))
	strict(root)
	return root
}

// strict turns cobra's argument errors into usage errors with a hint.
func strict(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fail(ExitUsage, "see: "+cmd.CommandPath()+" --help", "%s", strings.SplitN(err.Error(), "\n", 2)[0])
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

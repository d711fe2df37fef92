package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/attack"
)

type testFlags struct {
	attack  bool
	machine string
	groups  []string
	json    bool
}

func newTest(w World) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test --attack",
		Short: "Attack a sandbox on this machine and say what held",
		Long: `Boots a sandbox, has an app in it try what a sandbox must refuse, from every
place in which an app starts a thread or a process, and prints what came of it.
What harms nothing is also tried on this host without a sandbox, as a control.

The exit code is 1 if an attack succeeded, a use that must be possible was
refused, or, in a VM, a denial by Landlock has no record of the kernel.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.attack {
				return fail(ExitUsage, "berth test --attack", "cannot test: nothing to test was named")
			}
			return runAttack(cmd.Context(), w, f)
		},
	}
	cmd.Flags().BoolVar(&f.attack, "attack", false, "attack a sandbox")
	cmd.Flags().StringVar(&f.machine, "machine", "auto", "machine to boot: auto, qemu or native")
	cmd.Flags().StringArrayVar(&f.groups, "group", nil, "only probes of this group ("+strings.Join(attack.Groups(), ", ")+"); may be repeated")
	cmd.Flags().BoolVar(&f.json, "json", false, "print every outcome as JSON")
	return cmd
}

func runAttack(ctx context.Context, w World, f testFlags) error {
	img, err := openImage()
	if err != nil {
		return err
	}
	choice, err := chooseMachine(ctx, w, f.machine, img)
	if err != nil {
		return err
	}
	report, err := attack.Run(ctx, attack.Options{
		Machine: choice.Machine, Image: img, Groups: f.groups, Control: selfControl,
		Log: func(format string, args ...any) { fmt.Fprintf(w.Err, format+"\n", args...) },
	})
	if err != nil {
		return &failure{code: ExitMachine, err: err}
	}
	if f.json {
		err = json.NewEncoder(w.Out).Encode(report)
	} else {
		err = report.Print(w.Out)
	}
	if err != nil {
		return err
	}
	if bad := report.Bad(); len(bad) > 0 {
		return fail(ExitFailed, "berth test --attack --json has every outcome", "the sandbox did not hold: %d bad outcomes, the first is %s of %s", len(bad), bad[0].Verdict, bad[0].ID)
	}
	return nil
}

// selfControl starts this program as the control, which main knows.
func selfControl(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "/proc/self/exe", args...)
}

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/explain"
	"github.com/berthos/berth/host/appbuild"
	"github.com/berthos/berth/host/grant"
	"github.com/berthos/berth/init/policy"
)

func newPolicy(w World) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show what a manifest allows",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	show := &cobra.Command{
		Use:   "show [DIR]",
		Short: "Compile a manifest and say what the app may touch",
		Long: `Compiles the manifest of the app in DIR (default: this folder) and prints what
the app may read, write and connect to, without building or starting anything.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := w.Dir
			if len(args) == 1 {
				dir = args[0]
			}
			return policyShow(w, dir, asJSON)
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print the compiled policy as JSON; the code's digest is zero, since nothing is built")
	cmd.AddCommand(show, newPolicyDiff(w))
	return cmd
}

func policyShow(w World, dir string, asJSON bool) error {
	m, file, err := appbuild.Read(dir)
	if err != nil {
		return err
	}
	p, notes, err := compile.Compile(m, appbuild.Unbuilt)
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintf(w.Err, "note: %s:%d: %s\n", file, n.Line, n.Text)
	}
	if known, err := grant.Look(dir, p.App); err != nil {
		fmt.Fprintln(w.Err, visibleLines("note: "+err.Error()))
	} else if narrowed, err := grant.Apply(p, known.Narrowing); err == nil {
		for _, c := range explain.Diff(p, narrowed) {
			fmt.Fprintln(w.Err, visibleLines("note: your grant takes away: "+c.Text))
		}
	}
	return printPolicy(w, p, asJSON)
}

func printPolicy(w World, p policy.Policy, asJSON bool) error {
	if asJSON {
		raw, err := p.Encode()
		if err != nil {
			return err
		}
		fmt.Fprintln(w.Out, string(raw))
		return nil
	}
	fmt.Fprintln(w.Out, strings.TrimRight(p.String(), "\n"))
	return nil
}

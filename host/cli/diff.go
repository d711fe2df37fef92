package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/explain"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/appbuild"
	"github.com/berthos/berth/host/grant"
	"github.com/berthos/berth/init/policy"
)

type diffFlags struct{ approved, json bool }

func newPolicyDiff(w World) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff OLD NEW | diff --approved [DIR]",
		Short: "Say what changes between two manifests, what widens first",
		Long: `Compiles two manifests, each a file or an app's folder, and says what the second
allows more (+) and less (-) than the first. With --approved the manifest in DIR
(default: this folder) is compared with what you approved for it.

Exit codes: 0 if nothing more is allowed, 7 if something is.`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.approved != (len(args) < 2) {
				return fail(ExitUsage, "berth policy diff OLD NEW, or berth policy diff --approved [DIR]", "cannot compare: two manifests are needed, or one and --approved")
			}
			return policyDiff(w, f, args)
		},
	}
	cmd.Flags().BoolVar(&f.approved, "approved", false, "compare with what was approved")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the changes as JSON")
	return cmd
}

func policyDiff(w World, f diffFlags, args []string) error {
	from, to, err := sides(w, f, args)
	if err != nil {
		return err
	}
	changes := explain.Diff(from, to)
	if f.json {
		raw, err := json.Marshal(append([]explain.Change{}, changes...))
		if err != nil {
			return err
		}
		fmt.Fprintln(w.Out, escapeControls(raw))
	} else {
		for _, c := range changes {
			fmt.Fprintln(w.Out, visibleLines(c.String()))
		}
	}
	if len(explain.Widens(changes)) > 0 {
		return &failure{code: ExitWider, err: fmt.Errorf("")}
	}
	return nil
}

// sides are the two policies to compare.
func sides(w World, f diffFlags, args []string) (from, to policy.Policy, err error) {
	if !f.approved {
		if from, err = named(w, args[0]); err == nil {
			to, err = named(w, args[1])
		}
		return from, to, err
	}
	dir := dirOf(w, args)
	if to, _, err = compiled(dir); err != nil {
		return from, to, err
	}
	known, err := grant.Look(dir, to.App)
	if err == nil && !known.There {
		err = fail(ExitNotFound, "the first start records it, or: berth approve "+dir, "cannot compare: nothing was approved for app %s in %s yet", to.App, dir)
	}
	return known.Approved, to, err
}

// named compiles a manifest: a file, or that of an app's folder.
func named(w World, name string) (policy.Policy, error) {
	name = dirOf(w, []string{name})
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		p, _, err := compiled(name)
		return p, err
	}
	raw, err := appbuild.ReadFile(name)
	if err != nil {
		return policy.Policy{}, err
	}
	m, err := manifest.Parse(filepath.Clean(name), raw)
	if err != nil {
		return policy.Policy{}, err
	}
	p, _, err := compile.Compile(m, appbuild.Unbuilt)
	return p, err
}

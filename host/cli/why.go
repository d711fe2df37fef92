package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/apps/explain"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/appbuild"
	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/grant"
	"github.com/berthos/berth/host/hostexecuted"
	"github.com/berthos/berth/init/policy"
)

type whyFlags struct {
	export, sandbox string
	json            bool
}

func newWhy(w World) *cobra.Command {
	var f whyFlags
	cmd := &cobra.Command{
		Use:   "why APP|DIR read|write|connect|bind|exec|call OBJECT",
		Short: "Say whether an app may do something, and what decides",
		Long: `Says whether an app may read, write or execute a path, connect to or bind a
port, or call an export of another app (APP.EXPORT), which line of its manifest or
which layer decides, and which line would allow it. Paths are those that the app
sees, such as /workspace/a.

APP is an app of a running sandbox; DIR is an app's folder (with a slash in it, or
"."), and nothing is started.

Exit codes: 0 allowed, 3 not allowed, 2 the question is not understood, 4 no such
app or export.`,
		Example: `  berth why filesystem write /tmp/escape.txt
  berth why . connect 443 --export fetch`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return why(cmd.Context(), w, f, args[0], explain.Question{Op: explain.Op(args[1]), Object: args[2]})
		},
	}
	cmd.Flags().StringVar(&f.export, "export", "", "ask for the process that serves this export, which may have fewer rights")
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "id of the sandbox, when several run the app")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the answer as JSON")
	return cmd
}

// subject is whom a question is about.
type subject struct {
	policy   policy.Policy     // as it is enforced, or would be
	asked    policy.Policy     // as the manifest asks for, if it is known
	manifest manifest.Manifest // the zero value if it is not known
	file     string
	in       explain.Sandbox
	shares   []control.Share
}

func why(ctx context.Context, w World, f whyFlags, of string, q explain.Question) error {
	s, err := whom(ctx, w, f, of)
	if err != nil {
		return err
	}
	process, err := s.process(f.export)
	if err != nil {
		return err
	}
	a, err := explain.Why(s.policy, process, s.in, q)
	if err != nil {
		return &failure{code: ExitUsage, err: err}
	}
	if f.json {
		raw, err := json.Marshal(a)
		if err != nil {
			return err
		}
		fmt.Fprintln(w.Out, escapeControls(raw))
	} else {
		fmt.Fprintln(w.Out, visibleLines(strings.Join(s.words(process, q, a), "\n")))
	}
	if !a.Allowed {
		return &failure{code: ExitDenied, err: fmt.Errorf("")}
	}
	return nil
}

// whom finds an app's folder, or a running app.
func whom(ctx context.Context, w World, f whyFlags, of string) (subject, error) {
	names, err := hostexecuted.Load()
	if err != nil {
		return subject{}, err
	}
	var s subject
	if of == "." || of == ".." || strings.Contains(of, "/") {
		s, err = ofFolder(dirOf(w, []string{of}))
	} else if _, app, found := findApp(ctx, w, of, f.sandbox); found != nil {
		err = found
	} else {
		s, err = ofApp(app)
	}
	if err != nil {
		return subject{}, err
	}
	s.in.HostExecuted, err = protected(names, s.policy)
	return s, err
}

func ofFolder(dir string) (subject, error) {
	m, file, err := appbuild.Read(dir)
	if err != nil {
		return subject{}, err
	}
	p, _, err := compiled(dir)
	if err != nil {
		return subject{}, err
	}
	known, err := grant.Look(dir, p.App)
	if err != nil {
		return subject{}, err
	}
	now, err := grant.Apply(p, known.Narrowing)
	return subject{policy: now, asked: p, manifest: m, file: file}, err
}

func ofApp(app control.App) (subject, error) {
	p, err := policy.Parse(app.Policy)
	if err != nil {
		return subject{}, err
	}
	s := subject{policy: p, asked: p, file: app.Manifest, shares: app.Shares}
	if m, _, err := appbuild.Read(filepath.Dir(app.Manifest)); err == nil && m.Name == p.App {
		s.manifest = m // it may have changed since: only lines that still say the same are named
		if asked, _, err := compiled(filepath.Dir(app.Manifest)); err == nil {
			s.asked = asked
		}
	}
	s.in.Readlink = s.readlink
	for _, share := range app.Shares {
		exclude := share.Exclude
		s.in.Shares = append(s.in.Shares, explain.Share{
			Path: share.Path, Aliases: share.Aliases, ReadOnly: share.ReadOnly,
			Excluded: func(rel string) bool { return files.Excluded(exclude, rel) },
		})
	}
	return s, nil
}

// protected reports which names of a share a process of p may not change.
func protected(names []string, p policy.Policy) (func(rel string) bool, error) {
	match, err := files.Matcher(files.WithoutNames(names, p.HostExecuted))
	if err != nil {
		return nil, err
	}
	return func(rel string) bool { return match(rel, false) }, nil
}

func (s subject) process(export string) (string, error) {
	if export == "" {
		return s.policy.Processes()[0], nil
	}
	process, ok := s.policy.Serves(export)
	if !ok {
		return "", fail(ExitNotFound, "it has "+strings.Join(s.policy.AllExports(), ", "), "cannot answer for export %q: app %s has none of that name", export, s.policy.App)
	}
	return process, nil
}

// readlink reads a symbolic link of a share, without following others.
func (s subject) readlink(name string) string {
	for _, share := range s.shares {
		rel, ok := strings.CutPrefix(name, share.Path+"/")
		if !ok {
			continue
		}
		root, err := os.OpenRoot(share.HostDir)
		if err != nil {
			return ""
		}
		defer root.Close()
		to, err := root.Readlink(rel)
		if err != nil {
			return ""
		}
		return to
	}
	return ""
}

// words are the lines of an answer about a process.
func (s subject) words(process string, q explain.Question, a explain.Answer) []string {
	verdict := "not allowed"
	if a.Allowed {
		verdict = "allowed"
	}
	lines := []string{fmt.Sprintf("%s: %s %s", verdict, q.Op, visible(a.Object)), "by: " + a.By}
	if a.Line != "" {
		lines = append(lines, "line: "+s.place(a.Line))
	}
	if a.Note != "" {
		lines = append(lines, "note: "+a.Note)
	}
	switch {
	case a.Allowed:
	case a.Fix != "" && s.narrowedAway(process, q):
		lines = append(lines, "fix: the manifest asks for it, and your grant takes it away: berth approve "+visible(filepath.Dir(s.file)))
	case a.Fix != "":
		where := visible(s.file)
		if process != policy.Main {
			part := fmt.Sprintf("the capabilities of export %q", process)
			if s.narrowedAway(policy.Main, q) { // the app has it
				where = part + " in " + where
			} else {
				where += ", there and to " + part + ","
			}
		}
		lines = append(lines, fmt.Sprintf("fix: the owner of this sandbox may add %q to %s and approve it", a.Fix, where))
	default:
		lines = append(lines, "fix: "+a.Advice)
	}
	return lines
}

// narrowedAway reports whether the manifest as such would allow it to the process.
func (s subject) narrowedAway(process string, q explain.Question) bool {
	if !slices.Contains(s.asked.Processes(), process) {
		return false
	}
	a, err := explain.Why(s.asked, process, s.in, q)
	return err == nil && a.Allowed
}

// place names the line of the manifest on which a capability stands.
func (s subject) place(capability string) string {
	for _, c := range s.manifest.Capabilities {
		if c.String() == capability {
			return fmt.Sprintf("%s, %s:%d", capability, visible(s.file), c.Line)
		}
	}
	for _, e := range s.manifest.Exports {
		for _, c := range e.Capabilities {
			if c.String() == capability {
				return fmt.Sprintf("%s, %s:%d", capability, visible(s.file), c.Line)
			}
		}
	}
	return capability
}

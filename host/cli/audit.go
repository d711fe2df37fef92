package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/audit"
)

func newAudit(w World) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "The audit trail: list, verify, head, prove, export, prune",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "folder of the trail, such as an exported one (default: yours)")
	open := func() (*audit.Trail, error) { return openTrail(w, dir) }
	cmd.AddCommand(newAuditList(w, open), newAuditVerify(w, open), newAuditHead(w, open), newAuditProve(w, open), newAuditExport(w, open), newAuditPrune(w, &dir))
	return cmd
}

// openTrail opens the trail for reading.
func openTrail(w World, dir string) (*audit.Trail, error) {
	if dir != "" {
		return audit.OpenTrail(absolute(w, dir))
	}
	folder, err := audit.Folder()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(folder); os.IsNotExist(err) {
		return nil, fail(ExitNotFound, "berth dev and berth os up write it", "cannot find an audit trail: %s is not there", folder)
	}
	return audit.OpenTrail(folder)
}

// auditFilter says which records are listed; empty fields let all through.
type auditFilter struct {
	app, run, kind, decision, since string
}

func newAuditList(w World, open func() (*audit.Trail, error)) *cobra.Command {
	var f auditFilter
	var asJSON, follow bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the records",
		Long: `Prints the records of the trail, oldest first. It does not check them: berth
audit verify does.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := open()
			if err != nil {
				return err
			}
			defer t.Close()
			return auditList(cmd.Context(), w, t, f, asJSON, follow)
		},
	}
	cmd.Flags().StringVar(&f.app, "app", "", "only records of this app")
	cmd.Flags().StringVar(&f.run, "run", "", "only records of this sandbox")
	cmd.Flags().StringVar(&f.kind, "kind", "", "only records of this kind: start, stop, call, result, denial, loss, name, prune")
	cmd.Flags().StringVar(&f.decision, "decision", "", "only records with this decision: allowed, denied, unavailable, failed")
	cmd.Flags().StringVar(&f.since, "since", "", "only records since this time (2026-01-31T15:00:00Z) or for this long (24h)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the lines of the trail as they are")
	cmd.Flags().BoolVar(&follow, "follow", false, "wait for more")
	return cmd
}

func auditList(ctx context.Context, w World, t *audit.Trail, f auditFilter, asJSON, follow bool) error {
	since, err := parseSince(f.since)
	if err != nil {
		return err
	}
	return t.Each(ctx, 0, follow, func(r audit.Record, line []byte) error {
		app, _, _ := strings.Cut(r.App, ".")
		switch {
		case f.app != "" && f.app != app && f.app != r.App, f.run != "" && f.run != r.Run,
			f.kind != "" && f.kind != string(r.Kind), f.decision != "" && f.decision != string(r.Decision),
			r.Time < since:
			return nil
		case asJSON:
			_, err := fmt.Fprintf(w.Out, "%s\n", line)
			return err
		}
		_, err := fmt.Fprintln(w.Out, visible(auditLine(r)))
		return err
	})
}

// parseSince is a time as records have it.
func parseSince(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if d, bad := time.ParseDuration(s); bad == nil {
		at, err = time.Now().Add(-d), nil
	}
	if err != nil {
		return "", fail(ExitUsage, "a time such as 2026-01-31T15:00:00Z, or a duration such as 24h", "cannot understand %q", s)
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000000Z"), nil
}

// auditLine is a record for people.
func auditLine(r audit.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", r.Seq, r.Time, r.Kind)
	if r.App != "" {
		b.WriteString(" " + r.App)
		if r.Export != "" {
			b.WriteString("." + r.Export)
		}
	}
	if r.Call != nil {
		fmt.Fprintf(&b, " of %d", *r.Call)
	}
	if r.Decision != "" {
		b.WriteString(" " + string(r.Decision))
	}
	if r.Actor != "" {
		fmt.Fprintf(&b, " by %s (%s)", r.Actor, r.ActorBy)
	}
	if e := r.Evidence; e != nil {
		what := e.Blockers
		if what == "" {
			what = e.Syscall
		}
		fmt.Fprintf(&b, " %s %s, recorded by the kernel", what, e.Object)
	}
	if r.Capability != "" {
		b.WriteString("; allowed by " + r.Capability)
	}
	if r.Count != 0 {
		fmt.Fprintf(&b, " %d", r.Count)
	}
	if r.Bound != nil {
		fmt.Fprintf(&b, " on %s, policy sha256 %s", r.Bound.Machine, r.Bound.Policy)
	}
	if r.Reason != "" {
		b.WriteString(": " + r.Reason)
	}
	return b.String()
}

func newAuditVerify(w World, open func() (*audit.Trail, error)) *cobra.Command {
	var head string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the whole trail",
		Long: `Checks that no record was changed, removed, added or moved. A trail that was cut
off, rolled back or written anew by somebody who has its key is found only with a
head that was kept elsewhere (berth audit head > FILE): without one a good trail is
"consistent, not anchored", and the exit code 8.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			t, err := open()
			if err != nil {
				return err
			}
			defer t.Close()
			return auditVerify(w, t, head, asJSON)
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "file with a head that was kept elsewhere")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the verdict as JSON")
	return cmd
}

func auditVerify(w World, t *audit.Trail, headFile string, asJSON bool) error {
	var head *audit.Checkpoint
	if headFile != "" {
		raw, err := os.ReadFile(absolute(w, headFile))
		if err != nil {
			return fmt.Errorf("cannot read the head: %w", err)
		}
		c, err := audit.ParseCheckpoint(raw, t.Verifier())
		if err != nil {
			return fmt.Errorf("cannot compare with %s: %w", visible(headFile), err)
		}
		head = &c
	}
	v, err := t.Verify(head)
	if err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(w.Out, v); err != nil {
			return err
		}
	} else {
		printVerdict(w, v)
	}
	switch {
	case !v.OK():
		return fail(ExitFailed, "", "the trail is not what was written: record %d and perhaps others", v.Faults[0].Seq)
	case !v.Anchored:
		return &failure{code: ExitAlone, err: silent{}}
	}
	return nil
}

// silent is an error that has been told already.
type silent struct{}

func (silent) Error() string { return "" }

func printVerdict(w World, v audit.Verdict) {
	for _, f := range v.Faults {
		fmt.Fprintf(w.Out, "record %d: %s\n", f.Seq, visible(f.Text))
	}
	fmt.Fprintf(w.Out, "%d records, %d of them signed", v.Records, v.Signed)
	if v.First > 0 {
		fmt.Fprintf(w.Out, ", those before %d pruned", v.First)
	}
	switch {
	case !v.OK():
		fmt.Fprintln(w.Out, ": not consistent")
	case v.Anchored:
		fmt.Fprintln(w.Out, ": consistent, and goes on from the given head")
	default:
		fmt.Fprintln(w.Out, ": consistent, not anchored")
	}
}

func newAuditHead(w World, open func() (*audit.Trail, error)) *cobra.Command {
	var key bool
	cmd := &cobra.Command{
		Use:   "head",
		Short: "Print the newest signed head, to be kept elsewhere",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			t, err := open()
			if err != nil {
				return err
			}
			defer t.Close()
			if key {
				_, err := fmt.Fprintln(w.Out, t.Key())
				return err
			}
			c, ok, err := t.Head()
			if err != nil {
				return err
			}
			if !ok {
				return fail(ExitNotFound, "a head is signed within a second of a record", "the trail has no head yet")
			}
			_, err = w.Out.Write(c.Text)
			return err
		},
	}
	cmd.Flags().BoolVar(&key, "key", false, "print the public key that heads are signed with instead")
	return cmd
}

func newAuditProve(w World, open func() (*audit.Trail, error)) *cobra.Command {
	var check, key string
	cmd := &cobra.Command{
		Use:   "prove NUMBER | prove --check FILE --key KEY",
		Short: "Prove that one record is in the trail, without the rest",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if (check != "") == (len(args) == 1) || (check != "") != (key != "") {
				return fail(ExitUsage, "berth audit prove NUMBER > FILE; berth audit prove --check FILE --key \"$(berth audit head --key)\"", "cannot tell what to prove")
			}
			if check != "" {
				return checkProof(w, check, key)
			}
			seq, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return fail(ExitUsage, "", "cannot prove %q: it is no number of a record", args[0])
			}
			t, err := open()
			if err != nil {
				return err
			}
			defer t.Close()
			p, err := t.Prove(seq)
			if err != nil {
				return err
			}
			return printJSON(w.Out, p)
		},
	}
	cmd.Flags().StringVar(&check, "check", "", "file with a proof to check")
	cmd.Flags().StringVar(&key, "key", "", "public key of the trail that the proof must be of")
	return cmd
}

// maxProof is the size of a proof's file, in bytes.
const maxProof = 4 * audit.MaxLine

func checkProof(w World, file, key string) error {
	v, err := audit.ParseVerifier([]byte(key))
	if err != nil {
		return fail(ExitUsage, "it is what \"berth audit head --key\" prints", "cannot use the key: %w", err)
	}
	p, err := readProof(absolute(w, file))
	if err != nil {
		return err
	}
	if _, err := p.Verify(v); err != nil {
		return fmt.Errorf("the proof is none: %w", err)
	}
	_, err = fmt.Fprintln(w.Out, p.Record)
	return err
}

func readProof(file string) (p audit.Proof, err error) {
	f, err := os.Open(file)
	if err != nil {
		return p, fmt.Errorf("cannot read the proof: %w", err)
	}
	defer f.Close()
	dec := json.NewDecoder(io.LimitReader(f, maxProof))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("cannot read the proof: %w", err)
	}
	return p, nil
}

func newAuditExport(w World, open func() (*audit.Trail, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "export FOLDER",
		Short: "Copy the trail to a new folder, without its key",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := open()
			if err != nil {
				return err
			}
			defer t.Close()
			return t.Export(absolute(w, args[0]))
		},
	}
}

func newAuditPrune(w World, dir *string) *cobra.Command {
	var before time.Duration
	cmd := &cobra.Command{
		Use:   "prune --older DURATION",
		Short: "Remove old records, and say so in the trail",
		Long: `Removes whole files of records that are all older than the given time. What is
left can be verified as before, also against a head from before.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if before <= 0 {
				return fail(ExitUsage, "such as --older 2160h", "cannot prune: how old was not said")
			}
			folder, err := audit.Folder()
			if *dir != "" {
				folder, err = absolute(w, *dir), nil
			}
			if err != nil {
				return err
			}
			if _, err := os.Stat(folder); err != nil {
				return fail(ExitNotFound, "", "cannot find an audit trail: %w", err)
			}
			l, err := audit.Open(folder)
			if err != nil {
				return err
			}
			n, err := l.Prune(time.Now().Add(-before))
			if closed := l.Close(); err == nil {
				err = closed
			}
			if err == nil {
				fmt.Fprintf(w.Err, "%d records removed\n", n)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&before, "older", 0, "how old records must be, such as 2160h")
	return cmd
}

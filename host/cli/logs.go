package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
)

func newLogs(w World) *cobra.Command {
	var asJSON bool
	var id string
	cmd := &cobra.Command{
		Use:   "logs APP",
		Short: "Follow what an app prints",
		Long: `Follows the stdout and stderr of an app, what the kernel denied it (where its
records are read), and the guest's own log, until the sandbox ends, beginning
with the last lines before. Lines that were lost are counted.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return logs(cmd.Context(), w, args[0], id, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	cmd.Flags().StringVar(&id, "sandbox", "", "id of the sandbox, when several run the app")
	return cmd
}

func logs(ctx context.Context, w World, app, id string, asJSON bool) error {
	client, _, err := findApp(ctx, w, app, id)
	if err != nil {
		return err
	}
	err = client.Logs(ctx, func(r link.LogRecord) error {
		if r.App != "" && r.App != app {
			return nil
		}
		return printRecord(w.Out, r, asJSON)
	})
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C is how following ends
	}
	return err
}

func printRecord(out io.Writer, r link.LogRecord, asJSON bool) error {
	if asJSON {
		return printJSON(out, r)
	}
	if r.Dropped > 0 {
		if _, err := fmt.Fprintf(out, "[%d lines lost]\n", r.Dropped); err != nil {
			return err
		}
	}
	source := r.App
	switch {
	case r.Stream == sandbox.LogNames && r.App == "":
		source = "host"
	case r.App == "":
		source = "guest"
	}
	_, err := fmt.Fprintf(out, "%s %s: %s\n", source, r.Stream, visible(r.Line+known(r.Denied)))
	return err
}

// known is what the host adds to a denial: what would allow it, and how many
// calls it may be of.
func known(d *link.Denied) string {
	if d == nil || d.Kind == "counts" {
		return ""
	}
	var more string
	switch {
	case d.Capability != "":
		more = "; " + d.Capability + " would allow it"
	case d.Because != "":
		more = "; " + d.Because
	}
	if d.Calls > 1 {
		more += fmt.Sprintf("; in one of %d calls of that moment", d.Calls)
	}
	return more
}

package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/denial"
	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/hostexecuted"
	"github.com/berthos/berth/host/term"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

type rpcFlags struct {
	export  string
	input   string
	sandbox string
	stream  bool
	json    bool
}

func newRPC(w World) *cobra.Command {
	var f rpcFlags
	cmd := &cobra.Command{
		Use:   "rpc APP --export NAME [--input JSON|-]",
		Short: "Call an export of an app that runs",
		Long: `Calls one export of an app in a running sandbox. The result is JSON on stdout;
a denial, progress and what the app logs go to stderr.

With --stream the call's raw stream is connected too: stdin goes in, what comes
out goes to stdout, and the result goes to stderr.

Exit codes: 0 done, 2 the input is not understood, 3 the sandbox refused,
4 no such sandbox, app or export, 5 the app reported an error, 1 anything else.`,
		Example: `  berth rpc filesystem --export read_file --input '{"path":"hello.txt"}'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return rpc(cmd.Context(), w, args[0], f)
		},
	}
	cmd.Flags().StringVar(&f.export, "export", "", "name of the export to call")
	cmd.Flags().StringVar(&f.input, "input", "{}", `input as JSON, or "-" for stdin`)
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "id of the sandbox, when several run the app")
	cmd.Flags().BoolVar(&f.stream, "stream", false, "connect stdin and stdout to the call's raw stream")
	cmd.Flags().BoolVar(&f.json, "json", false, "print a denial or an error as JSON on stderr")
	return cmd
}

func rpc(ctx context.Context, w World, app string, f rpcFlags) error {
	input, err := rpcInput(ctx, w.In, f)
	if err != nil {
		return err
	}
	client, d, err := findApp(ctx, w, app, f.sandbox)
	if err != nil {
		return err
	}
	if err := checkExport(d, f.export); err != nil {
		return err
	}
	q := protocol.Request{ID: rand.Text(), Export: f.export, Input: input, Stream: f.stream}
	began := time.Now()
	out, err := call(ctx, w, client, d, q)
	if err != nil {
		err = explainLost(ctx, client, app, err)
		names := happened(ctx, client, d, began)
		worker := workerOf(d, f.export)
		rs := records(ctx, client, policy.Instance(d.Name, worker), began, f.stream, err)
		return rpcError(w, d, err, evidence{worker, rs, names}, f.json)
	}
	printNames(w.Err, happened(ctx, client, d, began), f.json)
	result := w.Out
	if f.stream {
		result = w.Err
	}
	if _, err := fmt.Fprintln(result, escapeControls(out)); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}

// rpcInput returns the input as one JSON value; its size is checked while it
// is read.
func rpcInput(ctx context.Context, in io.Reader, f rpcFlags) (json.RawMessage, error) {
	raw := []byte(f.input)
	if f.input == "-" {
		if f.stream {
			return nil, fail(ExitUsage, "give the input as an argument", "cannot read both the input and the raw stream from stdin")
		}
		var err error
		if raw, err = readUnless(ctx, io.LimitReader(in, protocol.MaxMessage+1)); err != nil {
			return nil, fmt.Errorf("cannot read the input from stdin: %w", err)
		}
	}
	switch {
	case len(raw) > protocol.MaxMessage:
		return nil, fail(ExitUsage, "send bulk data on the call's raw stream: --stream", "cannot send input: more than %d MiB", protocol.MaxMessage>>20)
	case !utf8.Valid(raw):
		return nil, fail(ExitUsage, "binary data goes into JSON as base64, or onto the raw stream: --stream", "cannot send input: it is not valid UTF-8")
	}
	var v json.RawMessage
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fail(ExitUsage, `an object is expected, such as '{"path":"hello.txt"}'`, "cannot send input: it is not JSON: %w", err)
	}
	return v, nil
}

// readUnless reads all of r, unless ctx ends first: a read of a terminal or a
// pipe cannot be interrupted.
func readUnless(ctx context.Context, r io.Reader) ([]byte, error) {
	type result struct {
		raw []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		raw, err := io.ReadAll(r)
		done <- result{raw, err}
	}()
	select {
	case got := <-done:
		return got.raw, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call makes the call and, if asked for, serves its raw stream.
func call(ctx context.Context, w World, c control.Client, d control.App, q protocol.Request) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.Open(ctx, d.Name, q.Export)
	if err != nil {
		return nil, err
	}
	on := func(m protocol.Message) {
		if m.Type == protocol.TypeProgress {
			fmt.Fprintf(w.Err, "progress: %s of %s %s\n", plain(m.Value), plain(m.Total), visible(m.Text))
		} else if m.Type == protocol.TypeLog {
			fmt.Fprintf(w.Err, "%s: %s\n", visible(m.Level), visible(m.Text))
		}
	}
	if !q.Stream {
		return protocol.Call(ctx, conn, q, on)
	}
	copied := make(chan error, 1)
	go func() { copied <- rawStream(ctx, w, c, d.Name, q) }()
	out, err := protocol.Call(ctx, conn, q, on)
	if err != nil {
		cancel()
		<-copied
		return nil, err
	}
	return out, <-copied
}

// plain writes a number without an exponent: most count bytes.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func rawStream(ctx context.Context, w World, c control.Client, app string, q protocol.Request) error {
	conn, err := c.Open(ctx, app, q.Export)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := protocol.NewWriter(conn).Request(protocol.Request{Type: protocol.TypeStream, ID: q.ID, Export: q.Export}); err != nil {
		return fmt.Errorf("cannot open the raw stream: %w", err)
	}
	go func() {
		io.Copy(conn, w.In)
		conn.CloseWrite()
	}()
	if _, err := io.Copy(w.Out, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot read the raw stream: %w", err)
	}
	return nil
}

// recordsWithin is how long a refused call waits for the kernel's records. They
// are there before the answer of the call, but for what is under way in the
// guest, which says itself when that is all.
const recordsWithin = 2 * time.Second

// records returns what the kernel recorded since the call began, if it was
// refused at all. Without records the explanation is inferred.
func records(ctx context.Context, c control.Client, process string, began time.Time, stream bool, callErr error) denial.Records {
	var said *protocol.Error
	if !errors.As(callErr, &said) || said.Errno != "EACCES" && said.Errno != "EXDEV" && said.Errno != "EPERM" {
		return denial.Records{}
	}
	d, err := c.Denials(ctx, process, began, recordsWithin)
	if err != nil {
		return denial.Records{Kept: true} // they may be, but did not come
	}
	rs := denial.Records{Kept: d.Kept, Complete: d.Complete, Calls: d.Calls}
	if stream {
		rs.Calls-- // its raw stream is a connection of its own
	}
	for _, r := range d.Records {
		rs.Missing += r.Suppressed + r.Lost
		// Those of the app's other processes came too, if it is its main one.
		if r.App == process && (len(r.Blockers) > 0 || r.Seccomp && r.PID != 0) {
			rs.List = append(rs.List, denial.Record{Blockers: r.Blockers, Arch: r.Arch, Syscall: r.Syscall, Exit: r.Exit, Object: r.Path + r.Object})
		}
	}
	return rs
}

// explainLost adds what died to an error of the connection.
func explainLost(ctx context.Context, c control.Client, app string, err error) error {
	var said *protocol.Error
	if errors.As(err, &said) || ctx.Err() != nil {
		return err
	}
	if why := c.Why(ctx, app); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// evidence is what was recorded and reported while a call ran.
type evidence struct {
	worker  string // the process of the app that served it
	records denial.Records
	names   control.Names
}

// happened asks what happened during the call to names of shared folders that
// hosts execute. It is there already: nothing is waited for.
func happened(ctx context.Context, c control.Client, d control.App, began time.Time) control.Names {
	if !slices.ContainsFunc(d.Shares, func(s control.Share) bool { return !s.ReadOnly }) {
		return control.Names{}
	}
	names, err := c.Names(ctx, began)
	if err != nil {
		return control.Names{} // whoever asks for the call's own error learns why
	}
	return names
}

// printNames tells of them, beside the result.
func printNames(out io.Writer, names control.Names, asJSON bool) {
	if asJSON && len(names.List) > 0 {
		printJSON(out, map[string]control.Names{"names": names})
		return
	}
	for _, n := range names.List {
		what := "not refused: " + n.Path
		if n.Refused {
			what = "refused: " + n.Op + " " + n.Path
		}
		fmt.Fprintln(out, visible(what+": "+n.Why))
	}
	if names.Cut {
		fmt.Fprintln(out, "there was more, which was not kept")
	}
}

func refusals(names control.Names) (list []denial.Refusal) {
	for _, n := range names.List {
		if n.Refused {
			list = append(list, denial.Refusal{Path: n.Path, Op: n.Op, Why: n.Why})
		}
	}
	return list
}

// rpcError turns an error of the call into its report and exit code.
func rpcError(w World, d control.App, err error, ev evidence, asJSON bool) error {
	var said *protocol.Error
	if !errors.As(err, &said) {
		return fail(ExitFailed, "", "%w", err)
	}
	p, parseErr := policy.Parse(d.Policy)
	if parseErr == nil {
		c := explainContext(d, p, ev.worker)
		c.Records, c.Refused = ev.records, refusals(ev.names)
		if den, ok := denial.Explain(c, *said); ok {
			printDenial(w.Err, den, asJSON)
			ev.names.List = slices.DeleteFunc(ev.names.List, func(n control.Name) bool { return n.Refused })
			printNames(w.Err, ev.names, asJSON)
			return &failure{code: ExitDenied, err: errors.New("")}
		}
	}
	printNames(w.Err, ev.names, asJSON)
	if asJSON {
		printJSON(w.Err, said)
		return &failure{code: appCode(said), err: errors.New("")}
	}
	return fail(appCode(said), "", "%s", visible(said.Error()))
}

func appCode(e *protocol.Error) int {
	switch e.Code {
	case protocol.CodeUnknownExport:
		return ExitNotFound
	case protocol.CodeInvalidInput:
		return ExitUsage
	}
	return ExitApp
}

func printDenial(out io.Writer, d denial.Denial, asJSON bool) {
	if asJSON {
		printJSON(out, map[string]denial.Denial{"denial": d})
		return
	}
	fmt.Fprint(out, visibleLines(d.String()))
}

// workerOf returns the process of an app that serves an export.
func workerOf(d control.App, export string) string {
	p, err := policy.Parse(d.Policy)
	if err != nil {
		return policy.Main
	}
	worker, _ := p.Serves(export)
	return worker
}

func explainContext(d control.App, p policy.Policy, worker string) denial.Context {
	if narrowed, err := p.For(worker); err == nil {
		p = narrowed
	}
	c := denial.Context{Policy: p, Digest: policy.Digest(d.Policy), Manifest: d.Manifest, HostExecuted: hostExecutedFor(p), Excluded: files.Excluded}
	c.Worker, c.Readlink = worker, readlinkOf(d.Shares)
	for _, s := range d.Shares {
		c.Shares = append(c.Shares, denial.Share{Path: s.Path, Aliases: s.Aliases, ReadOnly: s.ReadOnly, Exclude: s.Exclude})
	}
	return c
}

// readlinkOf reads symbolic links of shared folders, and never outside of them:
// what lies there is an app's.
func readlinkOf(shares []control.Share) func(denial.Share, string) (string, bool) {
	return func(of denial.Share, rel string) (string, bool) {
		i := slices.IndexFunc(shares, func(s control.Share) bool { return s.Path == of.Path })
		if i < 0 {
			return "", false
		}
		root, err := os.OpenRoot(shares[i].HostDir)
		if err != nil {
			return "", false
		}
		defer root.Close()
		target, err := root.Readlink(rel)
		return target, err == nil
	}
}

// hostExecutedFor judges places as the shares of an app do, by the user's list
// of now.
func hostExecutedFor(p policy.Policy) func(rel string) bool {
	list, err := hostexecuted.Load()
	if err != nil {
		list = files.HostExecutedNames()
	}
	match, err := files.Matcher(files.WithoutNames(list, p.HostExecuted))
	if err != nil {
		return files.IsHostExecuted
	}
	return func(rel string) bool { return match(rel, false) }
}

func checkExport(d control.App, name string) error {
	var names []string
	for _, e := range d.Exports {
		if e.Name == name {
			return nil
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return fail(ExitFailed, "what berth dev printed says why", "cannot call app %q: it is not running", d.Name)
	}
	has := "it exports " + strings.Join(names, ", ")
	if name == "" {
		return fail(ExitUsage, has, "cannot call app %q: --export is missing", d.Name)
	}
	return fail(ExitNotFound, has, "cannot call app %q: it has no export %q", d.Name, name)
}

// printJSON writes one line of JSON that steers no terminal.
func printJSON(out io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, escapeControls(raw))
	return err
}

// escapeControls writes characters that steer terminals as JSON escapes. Raw,
// they can only stand inside strings, so the value stays the same.
func escapeControls(raw json.RawMessage) string {
	var b strings.Builder
	for _, c := range string(raw) {
		if term.Steers(c) && c > ' ' {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// visibleLines is visible for text of several lines.
func visibleLines(s string) string { return term.Lines(s) }

// visible makes text from the sandbox safe to print on a terminal.
func visible(s string) string { return term.Visible(s) }

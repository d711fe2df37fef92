// Bench prints Berth's figures as a table, next to a peer measured in the same
// run where there is one.
//
//	bench [-o FILE] [-image DIR] [-cold]
//
// -o also writes the raw numbers as JSON. -cold times a build with an empty
// cache too (about ten minutes). Wall-clock figures depend on the host and its
// load; instruction counts do not.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"github.com/berthos/berth/host/machine/stub"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// figure is one row. Peer is 0 where nothing comparable was measured.
type figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Peer   float64 `json:"peer,omitempty"`
	PeerIs string  `json:"peer_is,omitempty"`
	Target string  `json:"target,omitempty"`
}

// bench collects figures. A part that fails is reported and the others go on.
type bench struct {
	image   string // folder
	work    string
	cold    bool
	log     io.Writer
	figures []figure
}

func (b *bench) add(f ...figure) { b.figures = append(b.figures, f...) }

func run(args []string, out, log io.Writer) int {
	if code, ok := stub.Maybe(args); ok {
		return code
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	file := flags.String("o", "", "write the raw numbers as JSON to `FILE`")
	img := flags.String("image", "build/image", "image `folder`")
	cold := flags.Bool("cold", false, "also time a build with an empty cache")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		fmt.Fprintln(log, "bench:", err)
		return 1
	}
	defer os.RemoveAll(work)
	b := &bench{image: *img, work: work, cold: *cold, log: log}
	code := b.measure(ctx)
	b.print(out)
	if *file != "" {
		if err := b.write(*file); err != nil {
			fmt.Fprintln(log, "bench:", err)
			return 1
		}
	}
	return code
}

func (b *bench) measure(ctx context.Context) (code int) {
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"image sizes", b.sizes},
		{"instructions to PID 1", b.boot},
		{"the enforcer", b.enforcer},
		{"sandboxes", b.sandboxes},
		{"builds", b.builds},
	} {
		if ctx.Err() != nil {
			return 1
		}
		fmt.Fprintln(b.log, "measuring "+part.name+" …")
		if err := part.run(ctx); err != nil {
			fmt.Fprintf(b.log, "bench: cannot measure %s: %v\n", part.name, err)
			code = 1
		}
	}
	return code
}

func (b *bench) print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tvalue\tpeer\tratio\ttarget")
	for _, f := range b.figures {
		peer, ratio := "", ""
		if f.Peer > 0 {
			peer = fmt.Sprintf("%s %s (%s)", short(f.Peer), f.Unit, f.PeerIs)
			ratio = fmt.Sprintf("%.3f", f.Value/f.Peer)
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\n", f.Name, short(f.Value), f.Unit, peer, ratio, f.Target)
	}
	t.Flush()
}

func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (b *bench) write(name string) error {
	raw, err := json.MarshalIndent(b.figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, append(raw, '\n'), 0o644)
}

// Filesystem is the app that reads and changes files for an agent: text and
// binary files, edits, folders, searches.
//
// It checks no path. What it may touch is decided by the kernel, from the
// capabilities in berth.yml; whatever the kernel answers is passed on. Relative
// paths start at /workspace.
//
// Exit status: 0 after an orderly shutdown, 1 if it cannot serve.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(context.Background(), os.Stderr)) }

func run(ctx context.Context, stderr io.Writer) int {
	if err := newApp(files{base: workspace}).Serve(ctx); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

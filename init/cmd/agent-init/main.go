// Agent-init starts one app under its policy. PID 1 executes it in new mount,
// pid, network, ipc and uts namespaces, with the descriptors that
// init/sandbox/spec.go names; as `agent-init enforce` it is its own child,
// which becomes the app. It has no flags and no way to enforce less.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/berthos/berth/init/sandbox"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	switch {
	case len(args) == 0:
		return sandbox.Supervise()
	case len(args) == 1 && args[0] == "enforce":
		return sandbox.Enforce()
	}
	fmt.Fprintln(stderr, "agent-init: PID 1 starts this program, with no arguments")
	return sandbox.ExitUsage
}

// Berth runs an agent's tools in sandboxes whose limits the kernel enforces.
//
//	berth doctor                          what this host can enforce
//	berth dev [DIR]                       build an app, run it in a sandbox
//	berth rpc APP --export E --input J    call an export
//	berth logs APP                        follow what an app prints
//	berth image list|verify               the guest image
//	berth test --attack                   attack a sandbox and say what held
//	berth policy show [DIR]               what a manifest allows
//
// Results go to stdout, everything for people to stderr. Exit codes are those
// of package cli.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/berthos/berth/host/attack"
	"github.com/berthos/berth/host/auditor"
	"github.com/berthos/berth/host/cli"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/host/monitor"
)

// version is set by the release build.
var version = "0.1.0-dev"

// patience is how long berth may take to end in order after a signal. It takes
// longer if nobody reads what it prints; its keepers then remove the sandboxes.
const patience = 10 * time.Second

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	if code, ok := stub.Maybe(args); ok {
		return code
	}
	if code, ok := attack.Maybe(args); ok {
		return code
	}
	if len(args) > 1 && args[1] == monitor.Arg {
		return monitor.Main(monitor.Hooks{})
	}
	if len(args) > 1 && args[1] == auditor.Arg {
		return auditor.Main()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, func() {
		stop() // a second signal ends berth at once
		time.AfterFunc(patience, func() { os.Exit(cli.ExitFailed) })
	})
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth: cannot find the working directory:", err)
		return cli.ExitFailed
	}
	return cli.Run(ctx, cli.World{Args: args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Dir: dir, Version: version})
}

// Command init is PID 1 of a sandbox: "init vm" in a virtual machine, "init
// native-root|native-user <json>" on the host's kernel, where descriptor 3 is
// the link. It boots (mounts, sysctls, link, shares), starts apps through the
// enforcer as the host asks, and ends with the link. Exit codes: 0 in order,
// 1 after a failed step (on stderr and told to the host), 2 wrong arguments;
// in a virtual machine it reboots instead of exiting.
package main

import (
	"context"
	"os"

	"github.com/berthos/berth/init/boot"
)

func main() { os.Exit(boot.Run(context.Background(), os.Args[1:], os.Exit)) }

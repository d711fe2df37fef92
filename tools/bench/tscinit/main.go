//go:build amd64

// Command tscinit is a PID 1 for the boot bench: it prints the time stamp
// counter, which counts instructions there, and reboots.
package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/berthos/berth/tools/bench/tsc"
)

func main() { os.Exit(run()) }

func run() int {
	n := tsc.Read()
	console, err := openConsole()
	if err != nil {
		return 1
	}
	fmt.Fprintf(console, "TSC %d\n", n)
	console.Sync()
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART); err != nil {
		fmt.Fprintln(console, "cannot reboot:", err)
		return 1
	}
	return 0
}

// openConsole makes the device nodes: an initramfs has none.
func openConsole() (*os.File, error) {
	if err := syscall.Mount("dev", "/dev", "devtmpfs", 0, ""); err != nil {
		return nil, err
	}
	return os.OpenFile("/dev/console", os.O_WRONLY, 0)
}

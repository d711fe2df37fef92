// Attackapp tries what a sandbox must refuse and prints what came of it.
package main

import (
	"fmt"
	"os"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	raw, err := os.ReadFile("/proc/self/status")
	fmt.Println(string(raw), err, os.Environ())
	return 7
}

//go:build cgo

package sandbox_test

import "github.com/berthos/berth/tools/seccompile"

// filterFiles compiles the seccomp filters.
func filterFiles() (map[string][]byte, error) { return seccompile.Files("x86_64") }

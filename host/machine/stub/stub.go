// Package stub owns the second lives of a program that starts sandboxes: it is
// executed again as the keeper of a sandbox and as the first process in it.
package stub

import (
	"github.com/berthos/berth/host/machine/keeper"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
)

// Maybe runs the part that args (with the program's name) ask for, if they do.
// Programs and tests that start sandboxes call it before anything else and exit
// with the code if ok.
func Maybe(args []string) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case keeper.Arg:
		return keeper.Main(map[string]keeper.Job{native.Job: native.Prepare, qemu.Job: qemu.Prepare}), true
	case native.StubArg:
		return native.Stub(args[2:]), true
	case qemu.StubArg:
		return qemu.Stub(args[2:]), true
	}
	return 0, false
}

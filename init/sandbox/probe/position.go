package probe

import "golang.org/x/sys/unix"

// Position is where in an app an attack comes from.
type Position string

// The positions: every way in which an app comes by a thread or a process.
const (
	Main       Position = "main"       // the main thread of the process that was enforced
	Thread     Position = "thread"     // another thread of it
	ExecThread Position = "execthread" // what another thread executed in its place
	Grandchild Position = "grandchild" // of a child that was spawned (CLONE_VM, CLONE_VFORK, execve)
	Orphan     Position = "orphan"     // of a session of its own, whose parent has ended
	Memory     Position = "memory"     // executed from memory, without a file
	Fork       Position = "fork"       // forked, nothing executed
	Vfork      Position = "vfork"      // the same while its parent waits
	Sibling    Position = "sibling"    // the same as a child of the supervisor (CLONE_PARENT)
)

// Positions lists all of a world but Main.
func (w World) Positions() []Position {
	list := []Position{Thread, ExecThread, Grandchild, Orphan, Fork, Vfork, Sibling}
	if !w.VM {
		list = append(list, Memory)
	}
	return list
}

// Flags are those of clone for the positions that execute nothing.
func (at Position) Flags() (flags uintptr, forked bool) {
	switch at {
	case Fork:
		return 0, true
	case Vfork:
		return unix.CLONE_VFORK, true
	case Sibling:
		return unix.CLONE_PARENT, true
	}
	return 0, false
}

// Does says whether a probe can be tried from a position.
func (at Position) Does(p Probe) bool {
	_, forked := at.Flags()
	return !forked || p.Raw != nil
}

// Try runs a probe from a position whose process this already is.
func (at Position) Try(p Probe, w World) error {
	if flags, forked := at.Flags(); forked {
		return p.Raw(w, p.ID).Fork(flags)
	}
	return p.Do(w)
}

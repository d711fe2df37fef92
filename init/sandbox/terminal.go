package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxTerminals bounds the pseudo terminals that one process tree holds at once.
const maxTerminals = "64"

// hasTerminals says whether the nodes of terminals exist for the app.
func (e *enforcer) hasTerminals() bool { return e.policy.Terminal || e.ablated(ablateTerminal) }

// terminals mounts pseudo terminals of the app's own. Each mount of devpts is an
// instance of its own; those of the machine and of other apps are not in it. The
// group of a terminal is the app's own, for its namespace may have no other.
func (e *enforcer) terminals(t *tree) error {
	if !e.hasTerminals() {
		return nil
	}
	pts, err := newFilesystem("devpts", unix.MOUNT_ATTR_NOSUID|attrNoExec,
		option{"mode", "0620"}, option{"ptmxmode", "0666"}, option{"max", maxTerminals})
	if err != nil {
		return fmt.Errorf("terminal:attach:*: %w", err)
	}
	if err := t.put(pts, "/dev/pts", true); err != nil {
		return fmt.Errorf("terminal:attach:*: %w", err)
	}
	if err := t.symlink("pts/ptmx", "/dev/ptmx"); err != nil {
		return fmt.Errorf("terminal:attach:*: %w", err)
	}
	if e.policy.Terminal {
		e.Grants = append(e.Grants, grant{"/dev/pts", kindTerminals, pts})
	}
	return nil
}

package native

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
)

// mapIDs shows the files of a detached share under the ids of the sandbox.
func mapIDs(s planShare, tree, users int) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users)}
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	if err == nil {
		return nil
	}
	if refused(err) {
		return hint.Errorf("share a folder on another file system, or run berth as the user who owns this one",
			"the file system of %s, or one mounted below it, cannot map owners: %w", s.Dir, err)
	}
	return fmt.Errorf("cannot map owners: %w", err)
}

// userNamespace returns a user namespace with these mappings. A child that the
// kernel stops before its first instruction lends it.
func userNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	runtime.LockOSThread() // ptrace ties the child to this thread
	defer runtime.UnlockOSThread()
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{"berth-idmap"}, SysProcAttr: &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER,
		UidMappings:                uids,
		GidMappings:                gids,
		GidMappingsEnableSetgroups: true,
		Ptrace:                     true,
	}}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot make a user namespace: %w", err)
	}
	f, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // "signal: killed"
	if err != nil {
		return nil, fmt.Errorf("cannot open a user namespace: %w", err)
	}
	return f, nil
}

// rangeMap maps ids 0 to 65535 to the sandbox's own range of the host.
func rangeMap(base uint32) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(base), Size: 1 << 16}}
}

// ownerMap shows the folder's owner as the apps' id and nobody else.
func ownerMap(owner, base uint32) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: int(owner), HostID: int(base + appID), Size: 1}}
}

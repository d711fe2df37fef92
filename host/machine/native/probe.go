package native

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
)

// MinABI is the lowest Landlock ABI that the machine accepts: the first that
// knows rules for TCP.
const MinABI = 4

// landlockABI asks the running kernel; 0 means that it has no Landlock.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// Check refuses kernels on which nothing can be enforced.
func Check() error {
	switch abi := landlockABI(); {
	case abi == 0:
		return hint.Errorf("boot a kernel with CONFIG_SECURITY_LANDLOCK and landlock in its lsm= list, or use --machine qemu",
			"cannot use machine native: this kernel has no Landlock")
	case abi < MinABI:
		return hint.Errorf("Linux 6.7 and newer have it; or use --machine qemu",
			"cannot use machine native: Landlock ABI %d of this kernel is below %d", abi, MinABI)
	}
	return nil
}

// obstacles are settings of hosts that forbid user namespaces; but for one of
// them, only to ordinary users.
var obstacles = []struct {
	file, bad, advice string
	everybody         bool
}{
	{"/proc/sys/user/max_user_namespaces", "0", "sudo sysctl user.max_user_namespaces=10000", true},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl kernel.unprivileged_userns_clone=1", false},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		"sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for berth that allows userns", false},
}

// explain adds a hint to an error of a start, if a setting of the host is the
// likely cause.
func (m *Machine) explain(err error) error {
	if hint.Of(err) != "" {
		return err
	}
	for _, o := range obstacles {
		raw, readErr := os.ReadFile(o.file)
		if readErr != nil || strings.TrimSpace(string(raw)) != o.bad || m.root && !o.everybody {
			continue
		}
		name := strings.ReplaceAll(strings.TrimPrefix(o.file, "/proc/sys/"), "/", ".")
		return hint.Errorf(fmt.Sprintf("this host forbids user namespaces (%s is %s): %s; or use --machine qemu", name, o.bad, o.advice), "%w", err)
	}
	if inContainer() {
		return hint.Errorf("container engines forbid namespaces: start the container with --security-opt seccomp=unconfined, or use --machine qemu", "%w", err)
	}
	return err
}

func inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Lstat(mark); err == nil {
			return true
		}
	}
	return false
}

package boot

import "golang.org/x/sys/unix"

// vmMounts is what PID 1 mounts in a VM; a native machine has done it before.
// Apps see none of these: the enforcer builds their trees.
func vmMounts() []mount {
	const (
		quiet  = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		device = unix.MS_NOSUID | unix.MS_NOEXEC
	)
	return []mount{
		{"proc", "/proc", "proc", quiet, ""},
		{"sysfs", "/sys", "sysfs", quiet | unix.MS_RDONLY, ""},
		{"devtmpfs", "/dev", "devtmpfs", device, ""},
		{"tmpfs", "/run", "tmpfs", quiet, "mode=0755,size=16m"},
		{"tmpfs", "/tmp", "tmpfs", quiet, "mode=1777,size=16m"},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", quiet, ""},
	}
}

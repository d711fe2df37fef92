package monitor

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// allowedHere are calls that newer architectures do not have.
var allowedHere = []uint32{
	unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_NEWFSTATAT, unix.SYS_FADVISE64,
}

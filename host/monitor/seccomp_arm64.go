package monitor

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// allowedHere are calls that have another name on other architectures.
var allowedHere = []uint32{unix.SYS_FSTATAT, unix.SYS_FADVISE64}

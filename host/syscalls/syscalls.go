// Package syscalls owns the names of system calls by their numbers, as in the
// kernel's records, and which name stands for what an app says it did.
package syscalls

import (
	"fmt"
	"slices"
	"strings"
)

// Name returns the name of a system call on an architecture as the kernel calls
// it ("x86_64", "aarch64"); of one that is not known, its number.
func Name(arch string, number int) string {
	var name string
	switch arch {
	case "x86_64":
		name = x8664[number]
	case "aarch64":
		name = aarch64[number]
	}
	if name == "" {
		return fmt.Sprintf("system call %d", number)
	}
	return name
}

// families are names that stand for one operation: a C library, or the runtime
// of a language, takes the one or the other for it.
var families = [...]string{
	"open creat openat openat2",
	"chmod fchmod fchmodat fchmodat2",
	"mknod mknodat mkfifo mkfifoat",
	"mkdir mkdirat",
	"unlink unlinkat rmdir remove",
	"rename renameat renameat2 link linkat",
	"symlink symlinkat",
	"truncate ftruncate",
	"fork vfork clone clone3 fork/exec posix_spawn",
	"execve execveat exec fork/exec",
	"prlimit64 prlimit setrlimit",
	"umount umount2",
	"connect dial sendto sendmsg sendmmsg socket write",
	"bind listen socket",
	"kill tkill tgkill pidfd_send_signal",
}

// Same reports whether what an app calls op may be the system call of a name.
func Same(op, name string) bool {
	if op == name {
		return op != ""
	}
	for _, family := range families {
		names := strings.Fields(family)
		if slices.Contains(names, op) && slices.Contains(names, name) {
			return true
		}
	}
	return false
}

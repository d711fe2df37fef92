package monitor

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterCalls leaves this process the system calls that it makes: of Go's
// runtime, of a file server, and of unix sockets that it already has or listens
// on. It can start no program, open no connection and signal nobody but itself.
// What is not on the list fails with EPERM.
func filterCalls() error {
	prog := filter(uint32(os.Getpid()))
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return errno
	}
	if tid != 0 {
		return fmt.Errorf("thread %d has a filter of its own", tid)
	}
	return nil
}

// allowed are the calls without conditions; those of one architecture only are
// in allowedHere.
func allowed() []uint32 {
	return append([]uint32{
		// Go's runtime.
		unix.SYS_BRK, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL,
		unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FUTEX, unix.SYS_GETPID,
		unix.SYS_GETRANDOM, unix.SYS_GETTID, unix.SYS_GETTIMEOFDAY, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_MUNMAP,
		unix.SYS_NANOSLEEP, unix.SYS_PIPE2, unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ, unix.SYS_RT_SIGACTION,
		unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_YIELD,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_SIGALTSTACK, unix.SYS_GETRUSAGE, unix.SYS_MREMAP, unix.SYS_UNAME,
		// The end of the keeper, its child.
		unix.SYS_WAIT4, unix.SYS_WAITID,
		// Who it is; to act as a folder's owner also takes capabilities.
		unix.SYS_GETEUID, unix.SYS_GETUID, unix.SYS_GETEGID, unix.SYS_GETGID, unix.SYS_SETFSGID, unix.SYS_SETFSUID,
		unix.SYS_SETGROUPS, unix.SYS_GETRLIMIT,
		// Files: Landlock says which.
		unix.SYS_CLOSE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCNTL, unix.SYS_FDATASYNC,
		unix.SYS_FLOCK, unix.SYS_FSTAT, unix.SYS_FSTATFS, unix.SYS_FSYNC, unix.SYS_FTRUNCATE, unix.SYS_GETCWD,
		unix.SYS_GETDENTS64, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_RM_WATCH, unix.SYS_LINKAT, unix.SYS_LSEEK,
		unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_PREAD64, unix.SYS_PWRITE64,
		unix.SYS_READ, unix.SYS_READLINKAT, unix.SYS_READV, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_STATFS,
		unix.SYS_STATX, unix.SYS_SYMLINKAT, unix.SYS_UNLINKAT, unix.SYS_UTIMENSAT, unix.SYS_WRITE, unix.SYS_WRITEV,
		unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FALLOCATE,
		// The link, and control.sock.
		unix.SYS_ACCEPT4, unix.SYS_BIND, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT, unix.SYS_LISTEN,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_SETSOCKOPT, unix.SYS_SHUTDOWN,
		unix.SYS_SOCKETPAIR, unix.SYS_SPLICE, unix.SYS_SENDFILE, unix.SYS_COPY_FILE_RANGE,
	}, allowedHere...)
}

// condition is what the low half of an argument must be. The upper half is not
// looked at: the kernel takes these arguments as 32 bits, or ignores the rest.
type condition struct {
	call uint32
	arg  uint32
	op   uint16 // unix.BPF_JEQ: equal to value; unix.BPF_JSET: has a bit of value
	not  bool   // must not be so
	val  uint32
}

func conditions(pid uint32) []condition {
	return []condition{
		{call: unix.SYS_SOCKET, arg: 0, op: unix.BPF_JEQ, val: unix.AF_UNIX},
		{call: unix.SYS_CLONE, arg: 0, op: unix.BPF_JSET, val: unix.CLONE_THREAD}, // a thread, no process
		{call: unix.SYS_MMAP, arg: 2, op: unix.BPF_JSET, not: true, val: unix.PROT_EXEC},
		{call: unix.SYS_MPROTECT, arg: 2, op: unix.BPF_JSET, not: true, val: unix.PROT_EXEC},
		{call: unix.SYS_PRLIMIT64, arg: 0, op: unix.BPF_JEQ, val: 0}, // of itself
		{call: unix.SYS_TGKILL, arg: 0, op: unix.BPF_JEQ, val: pid},
		{call: unix.SYS_KILL, arg: 0, op: unix.BPF_JEQ, val: pid},
	}
}

// Offsets in struct seccomp_data.
const (
	offCall = 0
	offArch = 4
	offArgs = 16 // 64 bits each, the low half first on both architectures
)

// filter is the program. A call of another architecture ends the process, as no
// code of ours makes one.
func filter(pid uint32) []unix.SockFilter {
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	deny := ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	prog := []unix.SockFilter{
		load(offArch), jump(unix.BPF_JEQ, auditArch, 1, 0), ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(offCall),
	}
	for _, nr := range allowed() { // a number of another ABI (x32) is none of them
		prog = append(prog, jump(unix.BPF_JEQ, nr, 0, 1), ret(unix.SECCOMP_RET_ALLOW))
	}
	for _, c := range conditions(pid) {
		yes, no := ret(unix.SECCOMP_RET_ALLOW), deny
		if c.not {
			yes, no = no, yes
		}
		prog = append(prog, jump(unix.BPF_JEQ, c.call, 0, 4), load(offArgs+8*c.arg), jump(c.op, c.val, 0, 1), yes, no)
	}
	// The C library asks for this one first and then for clone, whose flags a
	// filter can see. Berth itself is built without it.
	prog = append(prog, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), ret(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	return append(prog, deny)
}

package seccomp

// What ordinary Go, glibc, Node and Python programs call. A call that is on
// neither list gets ENOSYS, as on an older kernel, and callers fall back:
// clone3 (its flags lie in memory, where a filter can not see them), io_uring,
// aio, System V IPC, message queues, NUMA placement, remap_file_pages.

// allowed lists what every class may call, whatever the arguments.
func allowed() []Entry {
	return []Entry{
		allow("reading and writing of open files, which were checked when opened",
			`read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek`),
		allow("opening and closing: mounts and Landlock decide which files",
			`open openat creat close close_range`),
		allow("descriptors of the process's own, and locks",
			`dup dup2 dup3 fcntl flock`),
		allow("metadata: of what is not granted there is none to see",
			`stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat`),
		allow("size and contents of files: write access is Landlock's",
			`truncate ftruncate fallocate fadvise64 readahead copy_file_range sendfile splice tee vmsplice`),
		allow("writing back", `fsync fdatasync sync syncfs sync_file_range`),
		allow("folders: mounts and Landlock decide which",
			`getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir`),
		allow("names: Landlock decides where they may be made and moved",
			`link linkat unlink unlinkat symlink symlinkat rename renameat renameat2 mknod mknodat umask`),
		allow("mode, owner, times and attributes of own files: read scopes are read-only mounts, and there is no capability to give files away",
			`chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
			setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr getxattrat
			listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat`),
		allow("watching of granted files: a watch needs read access",
			`inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`),
		allow("waiting for several descriptors",
			`poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
			epoll_wait epoll_wait_old epoll_pwait epoll_pwait2`),
		allow("pipes, events and files in memory, of the process's own. A file in memory can be executed: execution is no integrity boundary",
			`pipe pipe2 eventfd eventfd2 signalfd signalfd4 memfd_create`),
		allow("questions to open files: there is no device in the app's tree whose answers harm, and Landlock refuses ioctl on others",
			`ioctl`),
		allow("memory of the process's own",
			`brk mmap mprotect munmap mremap madvise mincore msync mlock mlock2 mlockall munlock munlockall
			mseal membarrier pkey_alloc pkey_free pkey_mprotect map_shadow_stack`),
		allow("processes and threads. New namespaces are refused below", `clone fork vfork exit exit_group wait4 waitid`),
		allow("programs: mounts (noexec) and Landlock decide which files", `execve execveat`),
		allow("own identity", `getpid gettid getppid getpgid getpgrp getsid setpgid setsid
			getuid geteuid getgid getegid getresuid getresgid getgroups`),
		allow("change of identity: to the only one it has, as no capability is left",
			`setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capget capset`),
		allow("signals: to its own processes, by pid namespace and Landlock's scope",
			`kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal`),
		allow("handling of signals", `rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait
			sigaltstack pause restart_syscall`),
		allow("locks between threads, and what C libraries set up for a thread",
			`futex futex_waitv futex_wait futex_wake futex_requeue set_robust_list get_robust_list
			set_tid_address rseq arch_prctl`),
		allow("priorities and limits: only down, as no capability is left",
			`getpriority setpriority ioprio_get ioprio_set getrlimit setrlimit getrusage`),
		allow("scheduling: within the cgroup; real time needs a limit above 0, and it is 0",
			`sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam
			sched_getscheduler sched_setscheduler sched_getattr sched_setattr
			sched_get_priority_max sched_get_priority_min sched_rr_get_interval`),
		allow("clocks to read, and sleep",
			`time gettimeofday times clock_gettime clock_getres clock_nanosleep nanosleep`),
		allow("timers of the process's own", `alarm getitimer setitimer
			timer_create timer_settime timer_gettime timer_getoverrun timer_delete
			timerfd_create timerfd_settime timerfd_gettime`),
		allow("sockets that it has: which it can make is decided by socket and socketpair, where they lead by Landlock and the network namespace",
			`bind connect listen accept accept4 getsockname getpeername setsockopt getsockopt
			sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown`),
		allow("facts about the machine, and randomness", `uname sysinfo getcpu getrandom`),
		allow("only until the filters are loaded: the deny filter refuses it and comes last", `seccomp`),
	}
}

// Socket constants that the rules name.
const (
	afUnix, afInet, afInet6 = 1, 2, 10
	// afMax is the last address family that Linux knows; higher ones are unknown.
	afMax = 45

	sockTypeMask                     = 0xf // above it are SOCK_NONBLOCK and SOCK_CLOEXEC
	sockStream, sockDgram, sockRaw   = 1, 2, 3
	protoAny, protoICMP, protoTCP    = 0, 1, 6
	protoUDP, protoDCCP, protoICMPv6 = 17, 33, 58
	protoSCTP, protoUDPLite          = 132, 136
	protoMPTCP                       = 262
)

// allowedByArgument lists the calls of which only some are allowed.
func allowedByArgument() []Entry {
	prctl := func(why string, values ...uint64) Entry { return Entry{Allowed, arg("prctl", 0, values...), why} }
	return []Entry{
		{Allowed, append(arg("socket", 0, afUnix), arg("socketpair", 0, afUnix)...), "unix sockets, between its own processes: Landlock refuses those of others"},
		{Allowed, arg("prlimit64", 0, 0), "limits of the caller only: under one uid others' would reach the supervisor"},
		{Allowed, arg("personality", 0, 0, 0xffffffff), "plain Linux, and the question which it is"},
		prctl("PDEATHSIG: the signal that it gets when its parent ends", 1, 2),
		prctl("DUMPABLE: of itself", 3, 4),
		prctl("NAME: of a thread", 15, 16),
		prctl("TIMERSLACK, THP_DISABLE, MDWE, SET_VMA: its own timers and memory", 29, 30, 41, 42, 65, 66, 0x53564d41),
		prctl("CHILD_SUBREAPER: of its own children", 36, 37),
		prctl("NO_NEW_PRIVS: is on, and stays so", 38, 39),
		prctl("CAP_AMBIENT: raising is locked by securebits", 47),
		prctl("questions: KEEPCAPS, SECCOMP, CAPBSET_READ, SECUREBITS, MCE_KILL, TID_ADDRESS, SPECULATION_CTRL, AUXV", 7, 21, 23, 27, 34, 40, 52, 0x41555856),
		prctl("vector lengths, pointer keys and tagged addresses of arm64: its own", 50, 51, 63, 64, 54, 60, 61, 55, 56),
	}
}

// allowedInternet allows TCP and UDP sockets and no other protocol.
func allowedInternet() Entry {
	e := Entry{Verdict: Allowed, Why: "TCP and UDP: the ports are Landlock's, the way out the network namespace's"}
	for _, family := range []uint64{afInet, afInet6} {
		for _, kind := range [][2]uint64{{sockStream, protoAny}, {sockStream, protoTCP}, {sockDgram, protoAny}, {sockDgram, protoUDP}} {
			e.Rules = append(e.Rules, Rule{"socket", []Cond{
				{Arg: 0, Mask: Low, Value: family},
				{Arg: 1, Mask: sockTypeMask, Value: kind[0]},
				{Arg: 2, Mask: Low, Value: kind[1]},
			}})
		}
	}
	return e
}

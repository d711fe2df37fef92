package seccomp

// What ordinary Go, glibc, Node and Python programs call. A call that is on
// neither list gets ENOSYS, as on an older kernel, and callers fall back:
// clone3 (its flags lie in memory, where a filter can not see them), io_uring,
// aio, System V IPC, message queues, NUMA placement, remap_file_pages.

const allowFiles = `
	read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
	open openat creat close close_range dup dup2 dup3 fcntl flock lseek
	stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2
	truncate ftruncate fallocate fadvise64 readahead copy_file_range sendfile splice tee vmsplice
	fsync fdatasync sync syncfs sync_file_range
	getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir
	link linkat unlink unlinkat symlink symlinkat readlink readlinkat rename renameat renameat2
	mknod mknodat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask
	utime utimes utimensat futimesat
	setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr getxattrat
	listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat
	inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
	poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
	epoll_wait epoll_wait_old epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4
	pipe pipe2 memfd_create ioctl`

const allowMemory = `
	brk mmap mprotect munmap mremap madvise mincore msync mlock mlock2 mlockall munlock munlockall
	mseal membarrier pkey_alloc pkey_free pkey_mprotect map_shadow_stack`

const allowProcess = `
	clone fork vfork execve execveat exit exit_group wait4 waitid
	getpid gettid getppid getpgid getpgrp getsid setpgid setsid
	getuid geteuid getgid getegid getresuid getresgid getgroups
	setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capget capset
	kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal
	rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack pause
	futex futex_waitv futex_wait futex_wake futex_requeue set_robust_list get_robust_list
	set_tid_address rseq restart_syscall arch_prctl
	getpriority setpriority ioprio_get ioprio_set getrlimit setrlimit getrusage
	sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam
	sched_getscheduler sched_setscheduler sched_getattr sched_setattr
	sched_get_priority_max sched_get_priority_min sched_rr_get_interval`

const allowTime = `
	time gettimeofday times clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer
	timer_create timer_settime timer_gettime timer_getoverrun timer_delete
	timerfd_create timerfd_settime timerfd_gettime`

// Which sockets can be made is decided by socket and socketpair, below.
const allowSockets = `
	bind connect listen accept accept4 getsockname getpeername setsockopt getsockopt
	sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown`

const allowMachine = `uname sysinfo getcpu getrandom`

// allowLoading lets the deny filter be loaded on top of the allow filter. The
// deny filter then refuses any further one.
const allowLoading = `seccomp`

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

// allowByArgument lists the calls of which only some are allowed.
func allowByArgument() (rules []Rule) {
	rules = append(rules, arg("socket", 0, afUnix)...)
	rules = append(rules, arg("socketpair", 0, afUnix)...)
	rules = append(rules, arg("prlimit64", 0, 0)...)               // of the caller only
	rules = append(rules, arg("personality", 0, 0, 0xffffffff)...) // plain Linux, and the query
	rules = append(rules, arg("prctl", 0,
		1, 2, // SET_, GET_PDEATHSIG
		3, 4, // GET_, SET_DUMPABLE
		7,      // GET_KEEPCAPS
		15, 16, // SET_, GET_NAME
		21,     // GET_SECCOMP
		23,     // CAPBSET_READ
		27,     // GET_SECUREBITS
		29, 30, // SET_, GET_TIMERSLACK
		34,     // MCE_KILL_GET
		36, 37, // SET_, GET_CHILD_SUBREAPER
		38, 39, // SET_, GET_NO_NEW_PRIVS
		40,     // GET_TID_ADDRESS
		41, 42, // SET_, GET_THP_DISABLE
		47,             // CAP_AMBIENT: raising is locked by securebits
		50, 51, 63, 64, // SVE and SME vector lengths of arm64
		52,         // GET_SPECULATION_CTRL
		54, 60, 61, // PAC keys of arm64
		55, 56, // SET_, GET_TAGGED_ADDR_CTRL
		65, 66, // SET_, GET_MDWE
		0x41555856, // GET_AUXV
		0x53564d41, // SET_VMA: names of mappings
	)...)
	return rules
}

// allowInternet allows TCP and UDP sockets and no other protocol.
func allowInternet() (rules []Rule) {
	for _, family := range []uint64{afInet, afInet6} {
		for _, kind := range [][2]uint64{{sockStream, protoAny}, {sockStream, protoTCP}, {sockDgram, protoAny}, {sockDgram, protoUDP}} {
			rules = append(rules, Rule{"socket", []Cond{
				{Arg: 0, Mask: Low, Value: family},
				{Arg: 1, Mask: sockTypeMask, Value: kind[0]},
				{Arg: 2, Mask: Low, Value: kind[1]},
			}})
		}
	}
	return rules
}

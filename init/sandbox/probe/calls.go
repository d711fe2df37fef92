package probe

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Numbers that package unix has no name for.
const (
	sysListmount, sysStatmount   = 458, 457
	sysGetSelf, sysSetSelf       = 459, 460
	sysOpenTreeAttr, sysFileAttr = 467, 469
	sysListns                    = 470
	getMountNamespace            = 0xff03 // PIDFD_GET_MNT_NAMESPACE
)

// calls are system calls that no app may make, with arguments that no kernel
// accepts: what counts is that the call was looked at. Every number is tried in
// the tests of tools/seccompile.
func calls() (list []Probe) {
	add := func(layers []Layer, not func(World) string, id, what string, nr uintptr, args ...uintptr) {
		c := system(nr, args...)
		c.Reach = true
		list = append(list, Probe{ID: id, What: what, Layers: layers, Want: notAllowed, Not: not, Raw: func(World, string) Call { return c }})
	}
	only := func(id, what string, nr uintptr, args ...uintptr) {
		add([]Layer{{seccomp}}, nil, id, what, nr, args...)
	}
	anyRoot := func(id, what string, nr uintptr, args ...uintptr) { add(privileged, nil, id, what, nr, args...) }
	realRoot := func(id, what string, nr uintptr, args ...uintptr) {
		add(privileged, needsRoot, id, what, nr, args...)
	}

	only("FS-11", "name a file by handle", unix.SYS_NAME_TO_HANDLE_AT, bad, bad, bad, bad, bad)
	only("FS-11o", "open a file by handle", unix.SYS_OPEN_BY_HANDLE_AT, bad, bad, 0)
	only("FS-19f", "watch whole file systems", unix.SYS_FANOTIFY_INIT, unix.FAN_REPORT_FID, 0)
	only("FS-19m", "mark a file system", unix.SYS_FANOTIFY_MARK, bad, bad, 0, bad, bad)
	only("FS-20a", "set a file's attributes by the newest call", sysFileAttr, bad, bad, bad, bad, bad)

	anyRoot("MT-02s", "change a mounted file system", unix.SYS_FSPICK, bad, bad, 0)
	anyRoot("MT-02m", "move a mount by descriptor", unix.SYS_MOVE_MOUNT, bad, bad, bad, bad, bad)
	only("MT-02c", "configure a file system", unix.SYS_FSCONFIG, bad, bad, bad, bad, bad)
	only("MT-02l", "list mounts with listmount", sysListmount, 0, 0, 0, 0)
	only("MT-02q", "ask for a mount by its id", sysStatmount, 0, 0, 0, 0)
	only("MT-02b", "clone a mount with other attributes", sysOpenTreeAttr, bad, bad, bad, bad, bad)
	only("MT-02n", "list namespaces", sysListns, 0, 0, 0, bad)
	only("MT-03c", "clone3, whose flags no filter sees", unix.SYS_CLONE3, 0, 0)

	only("PR-04m", "advise another's memory", unix.SYS_PROCESS_MADVISE, bad, bad, bad, bad, bad)
	only("PR-04r", "reap another's memory", unix.SYS_PROCESS_MRELEASE, bad, 0)
	only("PR-06s", "a filter of the app's own by prctl", unix.SYS_PRCTL, unix.PR_SET_SECCOMP, 2, bad)
	only("PR-06d", "take system calls over in user space", unix.SYS_PRCTL, unix.PR_SET_SYSCALL_USER_DISPATCH, bad)
	only("PR-12a", "add a key", unix.SYS_ADD_KEY, bad, bad, bad, bad, bad)
	only("PR-12k", "keys", unix.SYS_KEYCTL, bad, 0, 0, 0, 0)
	only("PR-12r", "request a key", unix.SYS_REQUEST_KEY, bad, bad, bad, bad)
	only("PR-13s", "type into a terminal", unix.SYS_IOCTL, 1, unix.TIOCSTI, 0)
	only("PR-13h", "type into a terminal, with upper bits set", unix.SYS_IOCTL, 1, 1<<32|unix.TIOCSTI, 0)
	only("PR-13l", "paste into a console", unix.SYS_IOCTL, 1, unix.TIOCLINUX, 0)
	only("PR-13c", "take a terminal over, with upper bits set", unix.SYS_IOCTL, 1, 1<<40|unix.TIOCSCTTY, 0)
	only("PR-13d", "change a terminal's line discipline", unix.SYS_IOCTL, 1, unix.TIOCSETD, bad)
	only("PR-13o", "take a console's output", unix.SYS_IOCTL, 1, unix.TIOCCONS, 0)
	only("PR-21", "move memory pages", unix.SYS_MIGRATE_PAGES, 0, 64, bad, bad)

	only("KS-01", "io_uring", unix.SYS_IO_URING_SETUP, 0, bad)
	only("KS-01e", "enter an io_uring", unix.SYS_IO_URING_ENTER, bad, 1, 0, 0, 0)
	only("KS-01r", "register with an io_uring", unix.SYS_IO_URING_REGISTER, bad, 0, 0, 0)
	only("KS-02b", "bpf", unix.SYS_BPF, bad, 0, 0)
	only("KS-02p", "perf events", unix.SYS_PERF_EVENT_OPEN, bad, 0, bad, bad, 0)
	only("KS-02u", "userfaultfd", unix.SYS_USERFAULTFD, bad)
	realRoot("KS-03i", "load a module", unix.SYS_INIT_MODULE, bad, 0, bad)
	realRoot("KS-03f", "load a module from a file", unix.SYS_FINIT_MODULE, bad, bad, bad)
	realRoot("KS-03d", "unload a module", unix.SYS_DELETE_MODULE, bad, bad)
	realRoot("KS-03k", "load another kernel", unix.SYS_KEXEC_LOAD, 0, bad, 0, bad)
	anyRoot("KS-04b", "reboot", unix.SYS_REBOOT, bad, bad, bad, bad)
	realRoot("KS-04s", "swap to a file", unix.SYS_SWAPON, bad, 0)
	realRoot("KS-04a", "account processes to a file", unix.SYS_ACCT, bad)
	only("KS-04q", "quotas by descriptor", unix.SYS_QUOTACTL_FD, bad, bad, bad, bad)
	anyRoot("KS-04h", "name the host", unix.SYS_SETHOSTNAME, bad, bad)
	anyRoot("KS-04d", "name the domain", unix.SYS_SETDOMAINNAME, bad, bad)
	only("KS-04t", "set the time", unix.SYS_SETTIMEOFDAY, bad, bad)
	only("KS-04c", "set a clock", unix.SYS_CLOCK_SETTIME, bad, bad)
	only("KS-04j", "adjust the clock", unix.SYS_ADJTIMEX, bad)
	realRoot("KS-04l", "the kernel's log", unix.SYS_SYSLOG, 99, bad, 1)
	only("KS-04i", "all I/O ports", unix.SYS_IOPL, bad)
	only("KS-04p", "some I/O ports", unix.SYS_IOPERM, bad, bad, 1)
	only("KS-05l", "segments of the own", unix.SYS_MODIFY_LDT, 0, 0, 0)
	only("KS-07", "a filter of the app's own", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, bad, 0)
	only("KS-07n", "a filter with a listener", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, bad)
	only("KS-09s", "attributes of the security module", sysSetSelf, bad, bad, bad, bad)
	only("KS-09g", "ask the security modules", sysGetSelf, bad, bad, bad, bad)
	only("KS-10c", "which pages of a file are cached", unix.SYS_CACHESTAT, bad, bad, bad, 0)
	only("KS-10m", "memory policy", unix.SYS_MBIND, bad, bad, bad, bad, bad, bad)
	only("KS-10r", "rearrange mapped pages", unix.SYS_REMAP_FILE_PAGES, bad, bad, bad, bad, bad)
	only("KS-10s", "secret memory", unix.SYS_MEMFD_SECRET, bad)
	only("KS-11", "a Landlock domain of the app's own", unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	only("KS-11a", "a Landlock rule", unix.SYS_LANDLOCK_ADD_RULE, bad, bad, bad, bad)
	only("KS-11r", "enter a Landlock domain", unix.SYS_LANDLOCK_RESTRICT_SELF, bad, bad)
	only("KS-14", "asynchronous I/O", unix.SYS_IO_SETUP, bad, bad)
	return append(list, memoryCalls()...)
}

// memoryCalls have an effect, which is taken back.
func memoryCalls() []Probe {
	return []Probe{
		{ID: "KS-05x", What: "make all readable memory executable", Layers: []Layer{{seccomp}}, Want: notAllowed, Run: func(World, string) error { return persona(0x0400000) }},
		{ID: "KS-08", What: "map the first page of memory", Layers: []Layer{root}, Want: notAllowed, Not: needsRoot, Run: func(World, string) error {
			errno := raw(unix.SYS_MMAP, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED, bad, 0)
			if errno == 0 {
				raw(unix.SYS_MUNMAP, 0, 4096)
			}
			return errnoOrNil(errno)
		}},
	}
}

// persona changes the own personality and changes it back.
func persona(to uintptr) error {
	errno := raw(unix.SYS_PERSONALITY, to)
	if errno == 0 {
		raw(unix.SYS_PERSONALITY, 0)
	}
	return errnoOrNil(errno)
}

// noSocket also has what a setting of the network namespace answers.
var noSocket = []syscall.Errno{unix.EPERM, unix.ENOSYS, unix.ENOPROTOOPT}

// sockets are the kinds of sockets that no app of class base makes. Their
// kernels answer in several ways that they have none.
func sockets() (list []Probe) {
	absent := []syscall.Errno{unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.EINVAL, unix.ENOENT, unix.ENODEV, unix.EACCES}
	add := func(layers []Layer, id, what string, family, kind, proto uintptr) {
		list = append(list, Probe{ID: id, What: what, Layers: layers, Want: noSocket, Absent: absent, Raw: func(World, string) Call {
			return system(unix.SYS_SOCKET, family, kind|unix.SOCK_CLOEXEC, proto)
		}})
	}
	only := []Layer{{seccomp}}
	add(only, "NT-01", "TCP socket in a class without network", unix.AF_INET, unix.SOCK_STREAM, 0)
	add(only, "NT-01s", "TCP socket over IPv6", unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	add([]Layer{{seccomp}, {sysctls}}, "NT-04", "MPTCP socket", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	for _, f := range []struct {
		id, what string
		family   uintptr
		kind     uintptr
	}{
		{"NT-05a", "AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET}, {"NT-05v", "AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM},
		{"NT-05b", "AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_RAW}, {"NT-05c", "AF_CAN", unix.AF_CAN, unix.SOCK_RAW},
		{"NT-05t", "AF_TIPC", unix.AF_TIPC, unix.SOCK_STREAM}, {"NT-05r", "AF_RDS", unix.AF_RDS, unix.SOCK_SEQPACKET},
		{"NT-05n", "AF_NFC", unix.AF_NFC, unix.SOCK_RAW}, {"NT-05q", "AF_QIPCRTR", unix.AF_QIPCRTR, unix.SOCK_DGRAM},
		{"NT-05s", "AF_SMC", unix.AF_SMC, unix.SOCK_STREAM}, {"NT-05m", "AF_MCTP", unix.AF_MCTP, unix.SOCK_DGRAM},
		{"NT-05x", "AF_RXRPC", unix.AF_RXRPC, unix.SOCK_DGRAM}, {"NT-05p", "AF_PPPOX", unix.AF_PPPOX, unix.SOCK_STREAM},
		{"NT-05k", "AF_KCM", unix.AF_KCM, unix.SOCK_DGRAM}, {"NT-05i", "AF_IB", unix.AF_IB, unix.SOCK_STREAM},
	} {
		add(only, f.id, f.what+" socket", f.family, f.kind, 0)
	}
	add(privileged, "NT-05y", "AF_KEY socket", unix.AF_KEY, unix.SOCK_RAW, 2)
	add(privileged, "NT-05d", "AF_XDP socket", unix.AF_XDP, unix.SOCK_RAW, 0)
	add(only, "NT-05u", "UDP-Lite socket", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE)
	add(only, "NT-05z", "SCTP socket", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	add(only, "NT-06", "UDP socket in a class without network", unix.AF_INET6, unix.SOCK_DGRAM, 0)
	add(privileged, "NT-07", "raw socket", unix.AF_INET, unix.SOCK_RAW, 253)
	add(only, "NT-07p", "ping socket", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	add(privileged, "NT-07k", "packet socket", unix.AF_PACKET, unix.SOCK_RAW, 0)
	add(only, "NT-08", "netlink socket for routes", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	add(only, "NT-08a", "netlink socket for auditing", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)
	add(only, "NT-08n", "netlink socket for netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	add(only, "NT-08g", "generic netlink socket", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC)
	add(only, "NT-08u", "netlink socket for devices", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
	return append(list,
		Probe{ID: "NT-14m", What: "mark packets", Layers: []Layer{root}, Want: notAllowed, Run: func(World, string) error { return setOption(unix.SO_MARK) }},
		Probe{ID: "NT-14f", What: "force a socket's buffer", Layers: []Layer{root}, Want: notAllowed, Not: needsRoot, Run: func(World, string) error { return setOption(unix.SO_RCVBUFFORCE) }})
}

func setOption(option int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, option, 1)
}

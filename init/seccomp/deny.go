package seccomp

import "slices"

// What is dangerous by name: EPERM, and the kernel logs it. The list is about
// evidence as much as about protection, for what is on no list is refused too.

// refused lists what no class may call, whatever the arguments.
func refused() []Entry {
	return []Entry{
		refuse("changes or reveals mounts: a new one could shadow what the policy names, or name what it does not",
			`mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr
			mount_setattr statmount listmount listns`),
		refuse("disk quotas and swap", `quotactl quotactl_fd swapon swapoff`),
		refuse("watches whole file systems, past what is granted of them", `fanotify_init fanotify_mark`),
		refuse("opens files by number, past every folder", `open_by_handle_at`),
		refuse("new namespaces: inside one the app would have capabilities", `unshare setns`),
		refuse("reads, writes or steers another process", `ptrace process_vm_readv process_vm_writev process_madvise process_mrelease`),
		refuse("takes descriptors of another process, or compares with its", `pidfd_getfd kcmp`),
		refuse("programs, probes and fault handlers inside the kernel: large attack surfaces, often exploited",
			`bpf perf_event_open userfaultfd`),
		refuse("replaces or extends the kernel",
			`kexec_load kexec_file_load init_module finit_module delete_module create_module query_module get_kernel_syms`),
		refuse("the machine's: power, accounting, kernel log, names, clock, terminals",
			`reboot acct syslog sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex vhangup`),
		refuse("ports and segments of the processor", `iopl ioperm modify_ldt`),
		refuse("obsolete: no program needs it, and nobody looks after it", `nfsservctl lookup_dcookie uselib _sysctl sysfs`),
		refuse("keys of the kernel are kept by user, not by namespace", `add_key request_key keyctl`),
		refuse("a nested domain or filter could keep denials out of the record",
			`landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp lsm_set_self_attr`),
	}
}

// refusedByArgument lists the dangerous uses of calls that are allowed otherwise.
func refusedByArgument() []Entry {
	entries := []Entry{
		{Refused, bits("clone", 0,
			0x00020000, // NEWNS
			0x02000000, // NEWCGROUP
			0x04000000, // NEWUTS
			0x08000000, // NEWIPC
			0x10000000, // NEWUSER
			0x20000000, // NEWPID
			0x40000000, // NEWNET
		), "new namespaces, as unshare"},
		{Refused, arg("ioctl", 1, 0x5412), "TIOCSTI: types into a terminal, for whoever reads there next"},
		{Refused, arg("ioctl", 1, 0x541c), "TIOCLINUX: pastes into a console"},
		{Refused, arg("ioctl", 1, 0x5423), "TIOCSETD: line disciplines, drivers that were often exploited"},
		{Refused, arg("ioctl", 1, 0x541d), "TIOCCONS: takes the console's output"},
		{Refused, arg("prctl", 0, 8, 24, 28), "KEEPCAPS, CAPBSET_DROP, SECUREBITS: privileges are settled"},
		{Refused, arg("prctl", 0, 22, 59), "SECCOMP, SYSCALL_USER_DISPATCH: a filter or handler could keep denials out of the record"},
		{Refused, arg("prctl", 0, 26, 53, 57, 62), "TSC, SPECULATION_CTRL, IO_FLUSHER, SCHED_CORE: protections and priorities of the machine"},
		{Refused, arg("prctl", 0, 35), "SET_MM: forges what /proc tells about the process"},
		{Refused, arg("personality", 0, 0x0040000, 0x0400000), "ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC: protections of the process"},
		{Refused, arg("fcntl", 1, 1024), "F_SETLEASE: without a VM, whoever opens a leased file of a share on the host waits for the app, 45 s each time"},
		{Refused, []Rule{{"prlimit64", []Cond{{Arg: 0, Mask: All, Value: 0, Not: true}}}}, "limits of another process"},
		{Refused, slices.Concat(bits("sendto", 3, msgFastOpen), bits("sendmsg", 2, msgFastOpen), bits("sendmmsg", 3, msgFastOpen)),
			"MSG_FASTOPEN: connects without connect, which is all that Landlock sees"},
	}
	entries = append(entries, devices())
	return append(entries, setuidFiles()...)
}

// refusedTerminal is what a class without terminals may not do.
func refusedTerminal() Entry {
	return Entry{Refused, arg("ioctl", 1, 0x540e), "TIOCSCTTY: takes a terminal over"}
}

const msgFastOpen = 0x20000000

// setuidFiles refuses to give a file the bits by which it runs as its owner or
// group. On a machine without a VM the file of a share is one of the host, owned
// by the user there: who executes it on the host is that user. (openat2, whose
// mode no filter can see, is on no list for the same reason.)
func setuidFiles() []Entry {
	const setuid, setgid = 0o4000, 0o2000
	const create, tmpfile = 0o100, 0o20000000
	changed := Entry{Verdict: Refused, Why: "setuid and setgid: without a VM the file is one of the host, and runs there as its owner"}
	for _, c := range []struct {
		call string
		mode uint
	}{{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"fchmodat2", 2}, {"creat", 1}, {"mknod", 1}, {"mknodat", 2}} {
		changed.Rules = append(changed.Rules, bits(c.call, c.mode, setuid, setgid)...)
	}
	opened := Entry{Verdict: Refused, Why: "setuid and setgid of a new file (O_CREAT, O_TMPFILE). Without these flags the mode is not read"}
	for _, c := range []struct {
		call        string
		flags, mode uint
	}{{"open", 1, 2}, {"openat", 2, 3}} {
		for _, flag := range []uint64{create, tmpfile} {
			for _, bit := range []uint64{setuid, setgid} {
				opened.Rules = append(opened.Rules, Rule{c.call, []Cond{{Arg: c.flags, Mask: flag, Value: flag}, {Arg: c.mode, Mask: bit, Value: bit}}})
			}
		}
	}
	return []Entry{changed, opened}
}

// devices refuses to make device nodes. That takes a privilege that no app has,
// but for 0:0, which overlay file systems take for "removed" and which Landlock
// does not count as a device on every kernel.
func devices() Entry {
	const format, char, block = 0o170000, 0o020000, 0o060000
	e := Entry{Verdict: Refused, Why: "device nodes"}
	for _, c := range []struct {
		call string
		mode uint
	}{{"mknod", 1}, {"mknodat", 2}} {
		for _, kind := range []uint64{char, block} {
			e.Rules = append(e.Rules, Rule{c.call, []Cond{{Arg: c.mode, Mask: format, Value: kind}}})
		}
	}
	return e
}

// refusedFamilies refuses sockets of every known address family but the given.
func refusedFamilies(but ...uint64) Entry {
	e := Entry{Verdict: Refused, Why: "sockets of other families: drivers and protocols that Landlock does not see"}
	for family := uint64(0); family <= afMax; family++ {
		if !slices.Contains(but, family) {
			e.Rules = append(e.Rules, arg("socket", 0, family)...)
			e.Rules = append(e.Rules, arg("socketpair", 0, family)...)
		}
	}
	return e
}

// NoUnix lists what can speak to a unix socket by its path. A pair of stream
// sockets can not: it is connected from the start.
func NoUnix() []Rule {
	return append(arg("socket", 0, afUnix), Rule{"socketpair", []Cond{{Arg: 1, Mask: sockTypeMask, Value: sockDgram}}})
}

// refusedInternet names the sockets of the internet families that carry neither
// TCP nor UDP.
func refusedInternet() Entry {
	e := Entry{Verdict: Refused, Why: "raw, ICMP, DCCP, SCTP, UDP-Lite and MPTCP sockets pass Landlock's rules for TCP and UDP"}
	for _, family := range []uint64{afInet, afInet6} {
		f := Cond{Arg: 0, Mask: Low, Value: family}
		e.Rules = append(e.Rules, Rule{"socket", []Cond{f, {Arg: 1, Mask: sockTypeMask, Value: sockRaw}}})
		for _, proto := range []uint64{protoICMP, protoDCCP, protoICMPv6, protoSCTP, protoUDPLite, protoMPTCP} {
			e.Rules = append(e.Rules, Rule{"socket", []Cond{f, {Arg: 2, Mask: Low, Value: proto}}})
		}
	}
	return e
}

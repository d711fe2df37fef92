package seccomp

import "slices"

// What is dangerous by name: EPERM, and the kernel logs it. The list is about
// evidence as much as about protection, for what is on no list is refused too.

const denyMounts = `
	mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr
	mount_setattr statmount listmount listns quotactl quotactl_fd swapon swapoff
	fanotify_init fanotify_mark open_by_handle_at`

const denyProcess = `
	unshare setns ptrace process_vm_readv process_vm_writev process_madvise process_mrelease
	pidfd_getfd kcmp`

const denyKernel = `
	bpf perf_event_open userfaultfd
	kexec_load kexec_file_load init_module finit_module delete_module create_module query_module get_kernel_syms
	reboot acct syslog sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex
	iopl ioperm modify_ldt vhangup nfsservctl lookup_dcookie uselib _sysctl sysfs`

const denyKeys = `add_key request_key keyctl`

// A nested Landlock domain or filter could keep denials out of the record.
const denyRestrict = `
	landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp lsm_set_self_attr`

// denyByArgument lists the dangerous uses of calls that are allowed otherwise.
func denyByArgument() (rules []Rule) {
	rules = append(rules, bits("clone", 0,
		0x00020000, // NEWNS
		0x02000000, // NEWCGROUP
		0x04000000, // NEWUTS
		0x08000000, // NEWIPC
		0x10000000, // NEWUSER
		0x20000000, // NEWPID
		0x40000000, // NEWNET
	)...)
	rules = append(rules, arg("ioctl", 1,
		0x5412, // TIOCSTI: types into a terminal
		0x541c, // TIOCLINUX: pastes into a console
		0x540e, // TIOCSCTTY: takes a terminal over
		0x5423, // TIOCSETD: line disciplines
		0x541d, // TIOCCONS: takes the console's output
	)...)
	rules = append(rules, arg("prctl", 0,
		8,  // SET_KEEPCAPS
		22, // SET_SECCOMP
		24, // CAPBSET_DROP
		26, // SET_TSC
		28, // SET_SECUREBITS
		35, // SET_MM
		53, // SET_SPECULATION_CTRL
		57, // SET_IO_FLUSHER
		59, // SET_SYSCALL_USER_DISPATCH
		62, // SCHED_CORE
	)...)
	rules = append(rules, arg("personality", 0,
		0x0040000, // ADDR_NO_RANDOMIZE
		0x0400000, // READ_IMPLIES_EXEC
	)...)
	rules = append(rules, setuidFiles()...)
	// F_SETLEASE: without a VM, whoever opens a leased file of a share on the
	// host waits for the app, 45 s each time.
	rules = append(rules, arg("fcntl", 1, 1024)...)
	rules = append(rules, Rule{"prlimit64", []Cond{{Arg: 0, Mask: All, Value: 0, Not: true}}})
	// TCP fast open connects without connect, which is all that Landlock sees.
	rules = append(rules, bits("sendto", 3, msgFastOpen)...)
	rules = append(rules, bits("sendmsg", 2, msgFastOpen)...)
	rules = append(rules, bits("sendmmsg", 3, msgFastOpen)...)
	return rules
}

const msgFastOpen = 0x20000000

// setuidFiles refuses to give a file the bits by which it runs as its owner or
// group. On a machine without a VM the file of a share is one of the host, owned
// by the user there: who executes it on the host is that user. (openat2, whose
// mode no filter can see, is on no list for the same reason.)
func setuidFiles() (rules []Rule) {
	const setuid, setgid = 0o4000, 0o2000
	const create, tmpfile = 0o100, 0o20000000
	for _, c := range []struct {
		call string
		mode uint
	}{{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"fchmodat2", 2}, {"creat", 1}, {"mknod", 1}, {"mknodat", 2}} {
		rules = append(rules, bits(c.call, c.mode, setuid, setgid)...)
	}
	for _, c := range []struct {
		call        string
		flags, mode uint
	}{{"open", 1, 2}, {"openat", 2, 3}} {
		for _, flag := range []uint64{create, tmpfile} { // without them the mode is not read, and may be anything
			for _, bit := range []uint64{setuid, setgid} {
				rules = append(rules, Rule{c.call, []Cond{{Arg: c.flags, Mask: flag, Value: flag}, {Arg: c.mode, Mask: bit, Value: bit}}})
			}
		}
	}
	return rules
}

// denyFamilies refuses sockets of every known address family but the given.
func denyFamilies(but ...uint64) (rules []Rule) {
	for family := uint64(0); family <= afMax; family++ {
		if slices.Contains(but, family) {
			continue
		}
		rules = append(rules, arg("socket", 0, family)...)
		rules = append(rules, arg("socketpair", 0, family)...)
	}
	return rules
}

// NoUnix lists what can speak to a unix socket by its path. A pair of stream
// sockets can not: it is connected from the start.
func NoUnix() []Rule {
	return append(arg("socket", 0, afUnix), Rule{"socketpair", []Cond{{Arg: 1, Mask: sockTypeMask, Value: sockDgram}}})
}

// denyInternet names the sockets of the internet families that carry neither
// TCP nor UDP. MPTCP ones would pass Landlock's rules for TCP.
func denyInternet() (rules []Rule) {
	for _, family := range []uint64{afInet, afInet6} {
		f := Cond{Arg: 0, Mask: Low, Value: family}
		rules = append(rules, Rule{"socket", []Cond{f, {Arg: 1, Mask: sockTypeMask, Value: sockRaw}}})
		for _, proto := range []uint64{protoICMP, protoDCCP, protoICMPv6, protoSCTP, protoUDPLite, protoMPTCP} {
			rules = append(rules, Rule{"socket", []Cond{f, {Arg: 2, Mask: Low, Value: proto}}})
		}
	}
	return rules
}

package probe

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel are attacks on the kernel's surface. Where success would be harmful,
// arguments are such that no kernel accepts them: what counts is that the call
// was looked at. Every number is tried in package seccompile's tests.
func kernel() []Probe {
	only := []Layer{{seccomp}}
	call := func(id, what string, nr uintptr, args ...uintptr) Probe {
		return Probe{ID: id, What: what, Layers: only, Want: notAllowed, Run: func(World, string) error { return reached(raw(nr, args...)) }}
	}
	const bad = ^uintptr(0)
	return []Probe{
		call("FS-11", "name a file by handle", unix.SYS_NAME_TO_HANDLE_AT, bad, bad, bad, bad, bad),
		call("FS-19f", "watch whole file systems", unix.SYS_FANOTIFY_INIT, unix.FAN_REPORT_FID, 0),
		call("KS-01", "io_uring", unix.SYS_IO_URING_SETUP, 0, bad),
		call("KS-02u", "userfaultfd", unix.SYS_USERFAULTFD, bad),
		call("KS-07", "a filter of the app's own", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, bad, 0),
		call("KS-11", "a Landlock domain of the app's own", unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION),
		call("PR-12k", "keys", unix.SYS_KEYCTL, bad, 0, 0, 0, 0),
		call("PR-13s", "type into a terminal", unix.SYS_IOCTL, 1, unix.TIOCSTI, 0),
		call("PR-13h", "type into a terminal, with upper bits set", unix.SYS_IOCTL, 1, 1<<32|unix.TIOCSTI, 0),
		call("PR-13l", "paste into a console", unix.SYS_IOCTL, 1, unix.TIOCLINUX, 0),
		{ID: "KS-05", What: "switch address randomisation off", Layers: only, Want: notAllowed, Run: func(World, string) error {
			return errnoOrNil(raw(unix.SYS_PERSONALITY, 0x0040000))
		}},
		{ID: "NT-01", What: "TCP socket in a class without network", Layers: only, Want: notAllowed, Run: socket(unix.AF_INET, unix.SOCK_STREAM, 0)},
		{ID: "NT-06", What: "UDP socket in a class without network", Layers: only, Want: notAllowed, Run: socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)},
		{ID: "NT-07", What: "raw socket", Layers: []Layer{{seccomp}, root}, Want: notAllowed, Run: socket(unix.AF_INET, unix.SOCK_RAW, 253)},
		{ID: "NT-08", What: "netlink socket", Layers: only, Want: notAllowed, Run: socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)},
		{ID: "KS-13", What: "any device but the harmless ones", Want: []syscall.Errno{unix.ENOENT, unix.EACCES}, Run: func(World, string) error {
			var st unix.Stat_t
			return unix.Stat("/dev/tty", &st)
		}},
	}
}

func socket(family, kind, proto int) func(World, string) error {
	return func(World, string) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// ThirtyTwoBit calls getpid through int 0x80, the entry of 32-bit programs,
// where numbers mean other calls. The code is made at run time.
func ThirtyTwoBit() (int, error) {
	code := []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3} // mov $20, %eax; int $0x80; ret
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, err
	}
	copy(page, code)
	entry := unsafe.Pointer(&page[0])
	pointer := unsafe.Pointer(&entry)
	f := *(*func() int)(unsafe.Pointer(&pointer))
	return int(int32(f())), nil
}

// X32 calls getpid by its x32 number.
func X32() syscall.Errno { return raw(0x40000000 | unix.SYS_GETPID) }

package probe

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of files, as chattr sets them.
const (
	getFlags, setFlags  = 0x80086601, 0x40086602
	immutable, undumped = 0x10, 0x40
)

// notFlags are the answers of file systems and kernels without such flags.
var notFlags = []syscall.Errno{unix.ENOTTY, unix.EOPNOTSUPP, unix.EINVAL}

// own are attacks on what the app may touch, to change more than it may.
func own(w World) []Probe {
	whiteout := []Layer{{landlock}, {seccomp}}
	if w.ABI >= 11 { // there Landlock does not count it as a device
		whiteout = []Layer{{seccomp}}
	}
	return []Probe{
		{ID: "FS-13", What: "open a descriptor of a read scope again, for writing", Layers: readOnlyScope, Want: refused, Blocks: []string{"fs.write_file"}, Run: func(w World, id string) error {
			fd, err := unix.Open(ro(w, id, "f"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return errors.Join(errSetUp, err)
			}
			defer unix.Close(fd)
			return overwrite("/proc/self/fd/"+itoa(fd), unix.O_WRONLY)
		}},
		{ID: "FS-14", What: "pass a descriptor between own processes' sockets", Must: true, Run: passDescriptor},
		{ID: "FS-15b", What: "make a block device in a write scope", Layers: []Layer{root, {landlock}, {seccomp}}, Want: refused, Not: needsRoot, Blocks: []string{"fs.make_block"}, Run: func(w World, id string) error {
			return unix.Mknod(in(w, id, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0)))
		}},
		{ID: "FS-15w", What: "make a whiteout, a device that needs no privilege", Layers: whiteout, Want: refused, Blocks: []string{"fs.make_char"}, Run: func(w World, id string) error {
			return unix.Mknod(in(w, id, "whiteout"), unix.S_IFCHR, 0)
		}},
		{ID: "FS-16s", What: "make an own program setuid", Layers: []Layer{{seccomp}}, Want: notAllowed, Run: func(w World, id string) error {
			return unix.Chmod(in(w, id, "f"), 0o4755)
		}},
		{ID: "FS-16g", What: "make an own program setgid as it is created", Layers: []Layer{{seccomp}}, Want: notAllowed, Run: func(w World, id string) error {
			return openMode(in(w, id, "setgid"), unix.O_CREAT|unix.O_WRONLY, 0o2755)
		}},
		{ID: "FS-16d", What: "chmod a folder of a read scope", Layers: []Layer{{readOnly}}, Want: refused, Run: func(w World, id string) error {
			return unix.Fchmodat(unix.AT_FDCWD, ro(w, id, "d"), 0o700, 0)
		}},
		{ID: "FS-16f", What: "set flags of a file of a read scope", Layers: []Layer{{readOnly}}, Want: refused, Absent: notFlags, Run: func(w World, id string) error {
			return changeFlags(ro(w, id, "f"), undumped)
		}},
		{ID: "FS-16m", What: "make a folder in a read scope", Layers: readOnlyScope, Want: refused, Blocks: []string{"fs.make_dir"}, Run: func(w World, id string) error {
			return unix.Mkdir(ro(w, id, "made"), 0o755)
		}},
		{ID: "FS-20", What: "make an own file immutable", Layers: []Layer{root}, Want: notAllowed, Not: needsRoot, Absent: notFlags, Run: func(w World, id string) error {
			return changeFlags(in(w, id, "f"), immutable)
		}},
		{ID: "FS-21", What: "copy from a read scope to a write scope inside the kernel", Must: true, Run: copyInKernel},
		memoryProgram(w),
		{ID: "FS-29m", What: "write to own read-only memory through /proc/self/mem", Layers: readOnlyScope, Want: refused, Blocks: []string{"fs.write_file"}, On: "mem", Absent: []syscall.Errno{unix.EIO}, Run: writeOwnMemory},
		{ID: "FS-29d", What: "change what a core file would hold", Layers: readOnlyScope, Want: refused, Absent: []syscall.Errno{unix.ENOENT}, Blocks: []string{"fs.write_file"}, On: "coredump_filter", Run: func(World, string) error {
			return os.WriteFile("/proc/self/coredump_filter", []byte("0x33"), 0)
		}},
		{ID: "FS-29r", What: "open sysrq-trigger for writing", Absent: []syscall.Errno{unix.ENOENT}, Layers: []Layer{{proc}, {readOnly}, {landlock}, root}, Want: refused, Not: needsRoot, Blocks: []string{"fs.write_file"}, On: "sysrq", Run: func(World, string) error {
			return openClose("/proc/sysrq-trigger", unix.O_WRONLY)
		}},
		{ID: "FS-30l", What: "read the machine's load", Layers: []Layer{{proc}}, Want: refused, Run: readAny("/proc/loadavg")},
		{ID: "FS-30m", What: "read the machine's memory figures", Layers: []Layer{{proc}}, Want: refused, Run: readAny("/proc/meminfo")},
		{ID: "FS-30i", What: "read the interrupt counters", Layers: []Layer{{proc}}, Want: refused, Run: readAny("/proc/interrupts")},
		{ID: "FS-30r", What: "write to the kernel's random pool settings", Absent: []syscall.Errno{unix.ENOENT}, Layers: []Layer{{proc}, {readOnly}, {landlock}, root}, Want: refused, Not: needsRoot, Blocks: []string{"fs.write_file"}, On: "urandom_min_reseed_secs", Run: func(World, string) error {
			return openClose("/proc/sys/kernel/random/urandom_min_reseed_secs", unix.O_WRONLY)
		}},
	}
}

func openMode(name string, flags int, mode uint32) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// changeFlags sets a flag of a file, looks, and takes it back.
func changeFlags(name string, flag int) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	was, err := unix.IoctlGetInt(fd, getFlags)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(fd, setFlags, was|flag); err != nil {
		return err
	}
	now, err := unix.IoctlGetInt(fd, getFlags)
	return errors.Join(effect(err, now&flag != 0), unix.IoctlSetPointerInt(fd, setFlags, was))
}

// passDescriptor sends one end of a pair over another pair.
func passDescriptor(World, string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(pair[0]), nil, 0); err != nil {
		return err
	}
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[1], data, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return effect(err, false)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	return unix.Close(fds[0])
}

func copyInKernel(w World, id string) error {
	from, err := os.Open(ro(w, id, "f"))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(in(w, id, "copy"))
	if err != nil {
		return err
	}
	defer to.Close()
	n, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), nil, 64)
	return effect(err, n > 0)
}

// memoryProgram is a boundary only where the kernel is told to be one. Written
// files and interpreters aside, an app can execute any code there is.
func memoryProgram(w World) Probe {
	p := Probe{ID: "FS-25", What: "execute a program from memory: where it works, it is said to be no boundary", Must: true, Run: func(World, string) error { return runMemory() }}
	if w.VM {
		p.Must, p.Want, p.Silent = false, []syscall.Errno{unix.EACCES}, "vm.memfd_noexec"
	}
	return p
}

// runMemory executes a copy of this program that has no name.
func runMemory() error {
	fd, err := MemoryProgram()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return run("/proc/self/fd/" + itoa(fd))
}

// MemoryProgram copies this program into memory that execve takes.
func MemoryProgram() (int, error) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for len(program) > 0 {
		n, err := unix.Write(fd, program)
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
		program = program[n:]
	}
	return fd, nil
}

// writeOwnMemory changes a page that this process may only read.
func writeOwnMemory(World, string) error {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	defer unix.Munmap(page)
	fd, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Pwrite(fd, []byte{42}, int64(uintptr(unsafe.Pointer(&page[0]))))
	return effect(err, page[0] == 42)
}

package probe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spawn runs this program again in new namespaces. The child does nothing, or
// what the argument says, and its exit code tells whether that worked.
func spawn(flags uintptr, args ...string) error {
	cmd := exec.Command("/proc/self/exe", append(args, argNothing)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 && len(args) > 0 { // without a map, execve would take the capabilities
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return syscall.Errno(exit.ExitCode())
	}
	return err
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	errors.As(err, &errno)
	return errno
}

// unreachable are the errnos of what is done to a process of somebody else.
var unreachable = []syscall.Errno{unix.EPERM, unix.EACCES, unix.ESRCH, unix.ENOENT, unix.ENOSYS}

// supervisor is the first process of the app's pid namespace.
const supervisor = 1

// processes are attacks on the supervisor, the one process of the namespace
// that is not the app's.
func processes(w World) []Probe {
	tracing := []Layer{{seccomp}, {landlock}, root}
	opening := []Layer{{landlock}, root}
	signalling := []Layer{{landlock}, root}
	hidden := []Layer{root, {proc}} // CAP_PERFMON reads what ptrace rules, Landlock's too, refuse
	if w.User {                     // one uid: what only the uid keeps apart, nothing does
		signalling = []Layer{{landlock}}
		opening = []Layer{{landlock}, {caps}}
		tracing, hidden = []Layer{{seccomp}, {landlock}, {caps}}, []Layer{{landlock}, {caps}}
	}
	return []Probe{
		{ID: "PR-01p", What: "trace the supervisor", Blocks: []string{"ptrace"}, On: "pid", Layers: tracing, Want: unreachable, Run: func(World, string) error { return seize(supervisor) }},
		{ID: "PR-01v", What: "read the supervisor's memory", Blocks: []string{"ptrace"}, On: "pid", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			return readMemory(supervisor)
		}},
		{ID: "PR-01g", What: "take a descriptor of the supervisor", Blocks: []string{"ptrace"}, On: "pid", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			return takeDescriptor(supervisor)
		}},
		{ID: "PR-01w", What: "write to the supervisor's memory", Blocks: []string{"ptrace"}, On: "pid", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			local := []byte{0}
			_, err := unix.ProcessVMWritev(supervisor, []unix.Iovec{{Base: &local[0], Len: 1}}, []unix.RemoteIovec{{Base: 8, Len: 1}}, 0)
			return reached(errnoOf(err))
		}},
		{ID: "PR-01m", What: "open the supervisor's memory", Blocks: []string{"ptrace"}, On: "pid", Layers: opening, Want: unreachable, Run: func(World, string) error {
			return openClose("/proc/1/mem", unix.O_RDONLY)
		}},
		{ID: "PR-18", What: "take the supervisor's mount namespace from its pidfd", Blocks: []string{"ptrace"}, On: "pid", Silent: identity, Layers: opening, Want: unreachable, Absent: []syscall.Errno{unix.ENOTTY, unix.EINVAL}, Run: func(World, string) error {
			return ioctlPidfd(supervisor, getMountNamespace)
		}},
		{ID: "PR-19", What: "ask for the supervisor's robust futexes", Blocks: []string{"ptrace"}, On: "pid", Layers: opening, Want: unreachable, Run: func(World, string) error {
			var head, size uintptr
			return errnoOrNil(raw(unix.SYS_GET_ROBUST_LIST, supervisor, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size))))
		}},
		{ID: "PR-01k", What: "compare with the supervisor", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			return errnoOrNil(raw(unix.SYS_KCMP, uintptr(os.Getpid()), supervisor, 1, 0, 0))
		}},
		{ID: "PR-02k", What: "signal the supervisor", Blocks: []string{"scope.signal"}, On: "pid", Layers: signalling, Want: unreachable, Run: func(World, string) error {
			return unix.Kill(supervisor, unix.SIGURG)
		}},
		{ID: "PR-02t", What: "signal the supervisor's thread", Blocks: []string{"scope.signal"}, On: "pid", Layers: signalling, Want: unreachable, Raw: func(World, string) Call {
			return system(unix.SYS_TGKILL, supervisor, supervisor, uintptr(unix.SIGURG))
		}},
		{ID: "PR-02z", What: "ask whether the supervisor is there by signal 0", Blocks: []string{"scope.signal"}, On: "pid", Layers: signalling, Want: unreachable, Raw: func(World, string) Call {
			return system(unix.SYS_KILL, supervisor, 0)
		}},
		{ID: "PR-02q", What: "queue a signal for the supervisor", Blocks: []string{"scope.signal"}, On: "pid", Layers: signalling, Want: unreachable, Run: func(World, string) error {
			info := [16]uint64{0: uint64(unix.SIGURG), 1: 0xffffffff} // si_code SI_QUEUE
			return errnoOrNil(raw(unix.SYS_RT_SIGQUEUEINFO, supervisor, uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&info))))
		}},
		{ID: "PR-02p", What: "signal the supervisor through a pidfd", Blocks: []string{"scope.signal"}, On: "pid", Layers: signalling, Want: unreachable, Run: func(World, string) error {
			fd, err := unix.PidfdOpen(supervisor, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.PidfdSendSignal(fd, unix.SIGURG, nil, 0)
		}},
		{ID: "PR-04l", What: "read the supervisor's limits", Layers: []Layer{{seccomp}}, Want: unreachable, Not: needsUser, Run: func(World, string) error {
			var now unix.Rlimit
			return unix.Prlimit(supervisor, unix.RLIMIT_NOFILE, nil, &now)
		}},
		{ID: "PR-04a", What: "move the supervisor to other CPUs", Layers: []Layer{root}, Want: unreachable, Not: needsRoot, Run: func(World, string) error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				return errors.Join(errSetUp, err)
			}
			return unix.SchedSetaffinity(supervisor, &set)
		}},
		{ID: "PR-07e", What: "read the supervisor's environment", Blocks: []string{"ptrace"}, On: "pid", Layers: hidden, Want: unreachable, Run: func(World, string) error {
			return openClose("/proc/1/environ", unix.O_RDONLY)
		}},
		{ID: "PR-07m", What: "read the supervisor's mappings", Blocks: []string{"ptrace"}, On: "pid", Layers: hidden, Want: unreachable, Run: func(World, string) error {
			return openClose("/proc/1/maps", unix.O_RDONLY)
		}},
		{ID: "PR-07x", What: "open the supervisor's program", Blocks: []string{"ptrace"}, On: "pid", Layers: opening, Want: unreachable, Run: func(World, string) error {
			return openClose("/proc/1/exe", unix.O_RDONLY)
		}},
		{ID: "PR-07f", What: "list the supervisor's descriptors", Blocks: []string{"ptrace"}, On: "pid", Layers: opening, Want: unreachable, Run: func(World, string) error {
			list, err := os.ReadDir("/proc/1/fd")
			return effect(err, len(list) > 0)
		}},
		{ID: "PR-07s", What: "read the supervisor's status", Layers: []Layer{{proc}}, Want: unreachable, Run: readAny("/proc/1/status")},
		{ID: "PR-07c", What: "read the supervisor's command line", Layers: []Layer{{proc}}, Want: unreachable, Run: readAny("/proc/1/cmdline")},
	}
}

// channels are ways to speak to others.
func channels(w World) []Probe {
	socketWant := unreachable
	if w.VM { // the socket's other end is in another kernel
		socketWant = append(socketWant[:len(socketWant):len(socketWant)], unix.ECONNREFUSED)
	}
	return []Probe{
		{ID: "PR-10", What: "connect to a socket that the host made in a granted folder", Blocks: []string{"fs.resolve_unix"}, Layers: unixLayers(w), Want: socketWant, Run: func(w World, id string) error {
			return connectSocket(filepath.Join(w.Write, id, "socket"))
		}},
		{ID: "PR-10d", What: "send to such a socket from one of a pair", Blocks: []string{"fs.resolve_unix"}, Layers: unixLayers(w), Want: socketWant, Run: func(w World, id string) error {
			return sendFromPair(filepath.Join(w.Write, id, "datagrams"))
		}},
		{ID: "PR-10p", What: "connect to such a socket through a descriptor of it", Layers: unixLayers(w), Want: socketWant, Blocks: []string{"fs.resolve_unix"}, Run: func(w World, id string) error {
			return throughDescriptor(filepath.Join(w.Write, id, "socket"))
		}},
		{ID: "PR-11s", What: "make System V semaphores", Layers: []Layer{{seccomp}}, Want: unreachable, Run: func(World, string) error {
			return segment(unix.SYS_SEMGET, unix.SYS_SEMCTL, 1, 0o1600)
		}},
		{ID: "PR-11m", What: "make a System V message queue", Layers: []Layer{{seccomp}}, Want: unreachable, Run: func(World, string) error {
			return segment(unix.SYS_MSGGET, unix.SYS_MSGCTL, 0o1600, 0)
		}},
		{ID: "PR-11q", What: "make a POSIX message queue", Layers: []Layer{{seccomp}, {rlimits}, {landlock}}, Blocks: []string{"fs.make_reg", "fs.read_file"}, On: "/", Harm: "it would leave a queue behind", Want: append(unreachable[:len(unreachable):len(unreachable)], unix.EMFILE), Raw: func(World, string) Call {
			c := system(unix.SYS_MQ_OPEN, 0, unix.O_RDONLY|unix.O_CREAT, 0o600, 0).onPaths(map[int]string{0: "probe"})
			return c
		}},
		{ID: "PR-11", What: "make System V shared memory", Layers: []Layer{{seccomp}}, Want: unreachable, Run: func(World, string) error {
			return segment(unix.SYS_SHMGET, unix.SYS_SHMCTL, 4096, 0o1600)
		}},
	}
}

// priorities are attacks on who gets the processor.
func priorities(World) []Probe {
	return []Probe{
		{ID: "PR-04p", What: "change the supervisor's priority", Layers: []Layer{root}, Want: unreachable, Not: needsRoot, Raw: func(World, string) Call {
			return system(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, supervisor, 0)
		}},
		{ID: "PR-04i", What: "change the supervisor's I/O priority", Layers: []Layer{root}, Want: unreachable, Not: needsRoot, Raw: func(World, string) Call {
			return system(unix.SYS_IOPRIO_SET, 1, supervisor, 0)
		}},
		{ID: "RS-05f", What: "ask for real time", Layers: []Layer{append(root[:2:2], cgroup)}, Want: unreachable, Not: needsRoot, Run: func(World, string) error {
			one := uint32(1)
			errno := raw(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&one))) // SCHED_FIFO
			if errno == 0 {
				zero := uint32(0)
				raw(unix.SYS_SCHED_SETSCHEDULER, 0, 0, uintptr(unsafe.Pointer(&zero)))
			}
			return errnoOrNil(errno)
		}},
		{ID: "RS-05n", What: "ask for a better priority", Silent: caps, Layers: []Layer{root}, Want: unreachable, Not: needsRoot, Run: func(World, string) error {
			if errno := raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(bad-4)); errno != 0 {
				return errno
			}
			return errnoOrNil(raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 0))
		}},
	}
}

// segment makes an object of System V and removes it.
func segment(get, control, size, flags uintptr) error {
	id, _, errno := syscall.Syscall(get, 0, size, flags) // IPC_PRIVATE
	if errno != 0 {
		return errno
	}
	if control == unix.SYS_SEMCTL {
		return errnoOrNil(raw(control, id, 0, unix.IPC_RMID))
	}
	return errnoOrNil(raw(control, id, unix.IPC_RMID, 0))
}

func ioctlPidfd(pid int, request uintptr) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	got, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), request, 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(got))
}

// unixLayers: from Landlock ABI 9 on it tells own sockets from others'; before,
// seccomp refuses what could connect to any.
func unixLayers(w World) []Layer {
	if w.ABI >= 9 {
		return []Layer{{landlock}}
	}
	return []Layer{{seccomp}}
}

// seize traces a process and looks at its status for the effect.
func seize(pid int) error {
	if errno := raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0); errno != 0 {
		return errno
	}
	status, err := os.ReadFile("/proc/" + itoa(pid) + "/status")
	return effect(err, !strings.Contains(string(status), "TracerPid:\t0\n"))
}

// readMemory asks for memory that is not mapped: EFAULT comes after permission.
func readMemory(pid int) error {
	local := make([]byte, 1)
	vec := []unix.Iovec{{Base: &local[0], Len: 1}}
	_, err := unix.ProcessVMReadv(pid, vec, []unix.RemoteIovec{{Base: 8, Len: 1}}, 0)
	return reached(errnoOf(err))
}

func takeDescriptor(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	taken, err := unix.PidfdGetfd(fd, 1, 0)
	if err != nil {
		return err
	}
	return unix.Close(taken)
}

// connectSocket connects to the socket of a path, or, with "@", of a name.
func connectSocket(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

func sendFromPair(name string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.Sendto(pair[0], []byte("probe"), 0, &unix.SockaddrUnix{Name: name})
}

package probe

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawn runs this program again in new namespaces. The child does nothing, or
// what the argument says, and its exit code tells whether that worked.
func spawn(flags uintptr, args ...string) error {
	cmd := exec.Command("/proc/self/exe", append(args, "-nothing")...)
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
	signalling := []Layer{{landlock}, root}
	hidden := []Layer{root, {proc}} // CAP_PERFMON reads what ptrace rules, Landlock's too, refuse
	if w.User {                     // one uid: what only the uid keeps apart, nothing does
		signalling = []Layer{{landlock}}
		tracing, hidden = []Layer{{seccomp}, {landlock}, {caps}}, []Layer{{landlock}, {caps}}
	}
	return []Probe{
		{ID: "PR-01p", What: "trace the supervisor", Layers: tracing, Want: unreachable, Run: func(World, string) error { return seize(supervisor) }},
		{ID: "PR-01v", What: "read the supervisor's memory", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			return readMemory(supervisor)
		}},
		{ID: "PR-01g", What: "take a descriptor of the supervisor", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			return takeDescriptor(supervisor)
		}},
		{ID: "PR-01k", What: "compare with the supervisor", Layers: tracing, Want: unreachable, Run: func(World, string) error {
			return errnoOrNil(raw(unix.SYS_KCMP, uintptr(os.Getpid()), supervisor, 1, 0, 0))
		}},
		{ID: "PR-02k", What: "signal the supervisor", Layers: signalling, Want: unreachable, Run: func(World, string) error {
			return unix.Kill(supervisor, unix.SIGURG)
		}},
		{ID: "PR-02p", What: "signal the supervisor through a pidfd", Layers: signalling, Want: unreachable, Run: func(World, string) error {
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
		{ID: "PR-07e", What: "read the supervisor's environment", Layers: hidden, Want: unreachable, Run: func(World, string) error {
			return openClose("/proc/1/environ", unix.O_RDONLY)
		}},
		{ID: "PR-07c", What: "read the supervisor's command line", Layers: []Layer{{proc}}, Want: unreachable, Run: readAny("/proc/1/cmdline")},
	}
}

// channels are ways to speak to others.
func channels(w World) []Probe {
	return []Probe{
		{ID: "PR-10", What: "connect to a socket that the host made in a granted folder", Layers: unixLayers(w), Want: unreachable, Run: func(w World, id string) error {
			c, err := net.Dial("unix", filepath.Join(w.Write, id, "socket"))
			if err != nil {
				return err
			}
			return c.Close()
		}},
		{ID: "PR-10d", What: "send to such a socket from one of a pair", Layers: unixLayers(w), Want: unreachable, Run: func(w World, id string) error {
			return sendFromPair(filepath.Join(w.Write, id, "datagrams"))
		}},
		{ID: "PR-11", What: "make System V shared memory", Layers: []Layer{{seccomp}}, Want: unreachable, Run: func(World, string) error {
			return errnoOrNil(raw(unix.SYS_SHMGET, 0x42, 4096, 0o1600))
		}},
	}
}

// unixLayers: from Landlock ABI 9 on it tells own sockets from others'; before,
// seccomp refuses what could connect to any.
func unixLayers(w World) []Layer {
	if w.ABI >= 9 {
		return []Layer{{landlock}}
	}
	return []Layer{{seccomp}}
}

func errnoOrNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
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

func sendFromPair(name string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.Sendto(pair[0], []byte("probe"), 0, &unix.SockaddrUnix{Name: name})
}

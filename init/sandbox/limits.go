package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// joinCgroups moves this process, and so all that it starts, into the cgroups
// that PID 1 hands over.
func joinCgroups(e *enforcer) (string, error) {
	if e.Spec.Cgroups == 0 {
		e.weaken("no cgroup: memory and CPU time are not limited, and processes only together with the sandbox's others")
		return "", fmt.Errorf("no cgroup was handed over: %w", errNotHere)
	}
	for fd := FDCgroup; fd < FDCgroup+e.Spec.Cgroups; fd++ {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return "", fmt.Errorf("cannot join the cgroup of descriptor %d: %w", fd, err)
		}
		if err := unix.Close(fd); err != nil {
			return "", fmt.Errorf("cannot close the cgroup of descriptor %d: %w", fd, err)
		}
	}
	return fmt.Sprintf("%d hierarchies", e.Spec.Cgroups), nil
}

// rlimit is a limit that no cgroup counts. A lower hard limit stays as it is.
type rlimit struct {
	name       string
	resource   int
	soft, hard uint64
}

var rlimits = []rlimit{
	{"core", unix.RLIMIT_CORE, 0, 0},
	{"nofile", unix.RLIMIT_NOFILE, 1024, 16384},
	{"memlock", unix.RLIMIT_MEMLOCK, 8 << 20, 8 << 20},
	{"msgqueue", unix.RLIMIT_MSGQUEUE, 0, 0},
	{"nice", unix.RLIMIT_NICE, 0, 0},
	{"rtprio", unix.RLIMIT_RTPRIO, 0, 0},
	{"sigpending", unix.RLIMIT_SIGPENDING, 4096, 4096},
}

// othersThreads is room for the threads of PID 1 and the supervisors where one
// uid counts them together with the app's.
const othersThreads = 256

func setRlimits(e *enforcer) (string, error) {
	limits := rlimits
	if e.Spec.Cgroups == 0 { // nothing else bounds a fork bomb
		n := uint64(e.policy.Limits.Pids + othersThreads)
		limits = append(slices.Clone(limits), rlimit{"nproc", unix.RLIMIT_NPROC, n, n})
	}
	for _, l := range limits {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(l.resource, &now); err != nil {
			return "", fmt.Errorf("cannot read limit %s: %w", l.name, err)
		}
		want := syscall.Rlimit{Cur: min(l.soft, now.Max), Max: min(l.hard, now.Max)}
		// Not unix.Prlimit: Go would put its own idea of nofile back at execve.
		if err := syscall.Setrlimit(l.resource, &want); err != nil {
			return "", fmt.Errorf("cannot set limit %s to %d: %w", l.name, want.Max, err)
		}
	}
	return "", nil
}

// closeDescriptors leaves the app its standard descriptors and, once it is
// executed, its socket. All others are marked, and the kernel closes them in
// execve: closing them here would take the Go runtime's own from under it.
func closeDescriptors(*enforcer) (string, error) {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "", fmt.Errorf("cannot mark descriptors: %w", err)
	}
	for fd := 0; fd <= 2; fd++ {
		if err := harmless(fd); err != nil {
			return "", fmt.Errorf("cannot leave the app descriptor %d: %w", fd, err)
		}
	}
	return "", nil
}

// harmless accepts what an app may have as a standard descriptor: a pipe, a
// socket or /dev/null, but neither a terminal nor a file of somebody else's.
func harmless(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFIFO, kind == unix.S_IFSOCK:
		return nil
	case kind == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3):
		return nil
	}
	return errors.New("it is neither a pipe nor a socket nor /dev/null")
}

package probe

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is one system call. Where Reach is set its arguments are such that no
// kernel accepts them: that it was looked at counts as success.
type Call struct {
	NR    uintptr
	Args  [6]uintptr
	Reach bool
	keep  []*byte // what Args point to
}

// bad is no pointer, no descriptor and no number that any call takes.
const bad = ^uintptr(0)

func system(nr uintptr, args ...uintptr) (c Call) {
	c.NR = nr
	copy(c.Args[:], args)
	return c
}

// onPaths puts paths in place of the given arguments.
func (c Call) onPaths(paths map[int]string) Call {
	for n, name := range paths {
		p, err := unix.BytePtrFromString(name)
		if err != nil {
			continue // the call gets a null pointer
		}
		c.keep = append(c.keep, p)
		c.Args[n] = uintptr(unsafe.Pointer(p))
	}
	return c
}

// Do makes the call in this process.
func (c Call) Do() error {
	_, _, errno := syscall.Syscall6(c.NR, c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
	runtime.KeepAlive(c.keep)
	return c.judge(errno)
}

func (c Call) judge(errno syscall.Errno) error {
	if c.Reach {
		return reached(errno)
	}
	return errnoOrNil(errno)
}

// Fork makes the call in a child that was cloned with these flags and executes
// nothing else, and returns what it answered. CLONE_PARENT makes the child one
// of this process's parent.
//
//go:norace
func (c Call) Fork(flags uintptr) error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(ends[0])
	var answer [1]byte
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 { // the child has no Go runtime: system calls only
		_, _, errno = syscall.RawSyscall6(c.NR, c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
		answer[0] = byte(errno)
		syscall.RawSyscall(unix.SYS_WRITE, uintptr(ends[1]), uintptr(unsafe.Pointer(&answer)), 1)
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	unix.Close(ends[1])
	runtime.KeepAlive(c.keep)
	if errno != 0 {
		return errno
	}
	n, err := unix.Read(ends[0], answer[:])
	if flags&unix.CLONE_PARENT == 0 {
		unix.Wait4(int(pid), nil, 0, nil)
	}
	if err != nil || n != 1 {
		return errNoEffect
	}
	return c.judge(syscall.Errno(answer[0]))
}

// reached turns the answer of a call that is made with arguments that no kernel
// accepts into success, unless the call itself was refused.
func reached(errno syscall.Errno) error {
	switch errno {
	case syscall.EPERM, syscall.ENOSYS, syscall.EACCES:
		return errno
	}
	return nil
}

func raw(nr uintptr, args ...uintptr) syscall.Errno {
	var errno syscall.Errno
	c := system(nr, args...)
	_, _, errno = syscall.Syscall6(c.NR, c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
	return errno
}

func errnoOrNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

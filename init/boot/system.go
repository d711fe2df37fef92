package boot

import (
	"context"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// System is everything PID 1 does to the machine it runs on, so that the order
// of steps, failures and restarts can be tested as functions.
type System struct {
	Now      func() time.Time
	SetClock func(time.Time) error

	Mkdir     func(path string, mode fs.FileMode) error // with parents; an existing one is fine
	RemoveAll func(path string) error

	// Sysctl writes a value below /proc/sys and returns what is read back.
	Sysctl func(path, value string) (string, error)

	Mount   func(m mount) error
	Unmount func(target string) error
	// Mount9P mounts a share whose server is at the other end of conn; the
	// kernel keeps its own reference.
	Mount9P func(conn *os.File, target string, readOnly bool) error

	Hostname   func(name string) error
	LoopbackUp func() error
	Landlock   func() int // ABI of the running kernel, 0 without Landlock
	Errata     func() int // bit N-1: it has the fix of erratum N
	Kernel     func() string
	MemoryUsed func() (kib int64, err error)

	Emulated   func() bool // the processor is emulated in software
	TimerSlack func(ns string) error

	Audit  func() (auditor, error) // the kernel's records, of a VM
	Parent func(pid int) int       // 0 if the process is gone

	OpenLink func(ctx context.Context) (link.Conn, error)
	Console  func(line string)

	KernelLog func() (io.ReadCloser, error) // of a VM

	// Start creates a process; Wait4 reaps any child that has ended, without
	// blocking, and returns 0 when there is none.
	Start   func(path string, argv, env []string, files []uintptr, attr *syscall.SysProcAttr) (pid int, err error)
	Wait4   func() (pid int, status syscall.WaitStatus)
	Signal  func(pid int, sig syscall.Signal) error
	Signals func(ctx context.Context) <-chan os.Signal // SIGCHLD, SIGTERM, SIGINT

	// Cgroup makes the group that the processes of an app share.
	Cgroup func(app string, limits policy.Limits, processes []string) (*appGroup, error)

	Listen func(path string) (*os.File, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)

	Sync   func()
	Reboot func() error // ends a VM; does nothing on a native machine, where PID 1 returns
	Abort  func()       // ends either at once
}

// mount is one mount(2).
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

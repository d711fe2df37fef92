package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/audit"
)

// realSystem is the machine that this process runs on.
func realSystem(profile string, exit func(int)) *System {
	s := &System{
		Now:      time.Now,
		SetClock: setClock,

		Mkdir:     os.MkdirAll,
		RemoveAll: os.RemoveAll,

		Sysctl: writeSysctl,

		Mount:   realMount,
		Unmount: func(target string) error { return helped(func() error { return unix.Unmount(target, 0) }) },
		Mount9P: mount9P,

		Hostname:   func(name string) error { return unix.Sethostname([]byte(name)) },
		LoopbackUp: loopbackUp,
		Landlock:   landlockABI,
		Errata:     landlockErrata,
		Kernel:     kernelRelease,
		MemoryUsed: memoryUsed,

		Emulated:   isEmulated,
		TimerSlack: setTimerSlack,

		Audit:  func() (auditor, error) { return audit.Register() },
		Parent: parentOf,

		Console:   console,
		KernelLog: func() (io.ReadCloser, error) { return os.Open("/dev/kmsg") },

		Start:   startProcess,
		Wait4:   wait4,
		Signal:  syscall.Kill,
		Signals: signals,

		Cgroup: makeGroup,

		Listen: listenUnix,
		Dial:   dialUnix,

		Sync:   unix.Sync,
		Reboot: func() error { return nil },
		Abort:  func() { exit(ExitFailed) },
	}
	s.OpenLink = openInherited
	if profile == "vm" {
		s.OpenLink = openPort
		s.Reboot = func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) }
		s.Abort = func() { _ = s.Reboot() }
	}
	return s
}

// parentOf reads a process's parent. Its name, in parentheses, may hold any byte.
func parentOf(pid int) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

func setClock(t time.Time) error {
	tv := unix.NsecToTimeval(t.UnixNano())
	return unix.Settimeofday(&tv)
}

// writePlain writes to a file that the kernel made, with plain system calls:
// os.OpenFile would give the file to the poller, which takes longer.
func writePlain(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// writeSysctl does so and reads the value back.
func writeSysctl(path, value string) (string, error) {
	if err := writePlain(path, value); err != nil {
		return "", err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("cannot read it back: %w", err)
	}
	defer unix.Close(fd)
	var buf [256]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return "", fmt.Errorf("cannot read it back: %w", err)
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

// realMount counts a filesystem that is already there, as the kernel mounts
// devtmpfs by itself, as mounted; its flags are set then.
func realMount(m mount) error {
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
	if err == unix.EBUSY && m.fstype == "devtmpfs" {
		return unix.Mount("", m.target, "", unix.MS_REMOUNT|unix.MS_BIND|m.flags, "")
	}
	return err
}

func mount9P(conn *os.File, target string, readOnly bool) error {
	fd := conn.Fd()
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	data := fmt.Sprintf("trans=fd,rfdno=%d,wfdno=%d,version=9p2000.L,access=any,cache=mmap,msize=524312,noxattr,locktimeout=1", fd, fd)
	return helped(func() error { return unix.Mount("berth", target, "9p", flags, data) })
}

// helped runs a system call that ends only once another goroutine has done
// something for it. With one processor for Go it would hold up that one until
// the scheduler notices, which takes up to 10 ms.
func helped(call func() error) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	return call()
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return err
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func landlockABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// landlockErrata is the set of errata that this kernel has fixed; one that
// cannot tell has fixed none.
func landlockErrata() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if errno != 0 {
		return 0
	}
	return int(v)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func memoryUsed() (int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 2 {
			values[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return values["MemTotal:"] - values["MemAvailable:"], nil
}

// console writes a line where people look when there is no link. The kernel's
// log shows it even if nothing is mounted.
func console(line string) {
	if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		defer f.Close()
		for l := range strings.Lines(line) {
			_, _ = f.WriteString("<2>" + l)
		}
		return
	}
	fmt.Fprintln(os.Stderr, line)
}

func startProcess(path string, argv, env []string, files []uintptr, attr *syscall.SysProcAttr) (int, error) {
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Dir: "/", Env: env, Files: files, Sys: attr})
}

func wait4() (int, syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, 0
		}
		return pid, status
	}
}

func signals(ctx context.Context) <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	// What ended before this is reaped too.
	c <- syscall.SIGCHLD
	context.AfterFunc(ctx, func() {
		signal.Stop(c)
		close(c)
	})
	return c
}

// listenUnix makes a listening socket that nothing but its folder protects:
// apps do not see it.
func listenUnix(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make its socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot bind %s: %w", path, err), f.Close())
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen on %s: %w", path, err), f.Close())
	}
	return f, nil
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { refuseDescriptors(int(fd)) })
	}}
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return nil, errors.New("it does not accept connections: its queue is full")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it does not listen any more")
	}
	return conn, err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	berth "github.com/berthos/berth/sdk/go"
	"golang.org/x/sys/unix"
)

type bombIn struct {
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
	Most int    `json:"most"` // where it ends by itself
}

type bombOut struct {
	Count int    `json:"count"`
	Error string `json:"error,omitempty"` // what ended it
	Text  string `json:"text"`
}

// held keeps what bombs took until the process ends.
var held struct {
	memory [][]byte
	files  []int
	cmds   []*exec.Cmd
}

// bomb takes more and more of something until it is refused, killed, or has
// Most. It says how far it is, since it may be killed.
func bomb(ctx context.Context, in bombIn) (bombOut, error) {
	step, ok := map[string]func(int, bombIn) error{
		"fork": fork, "threads": thread, "memory": memory, "shm": shm, "cache": cache, "tmpfs": fill, "disk": fill,
		"pipes": pipes, "sockets": sockets, "epoll": epoll, "timers": timers, "inotify": inotify, "watches": watches,
		"files": descriptors, "inodes": inodes, "dentries": dentries, "line": line, "lines": lines, "denied": denied,
	}[in.Kind]
	if !ok {
		return bombOut{}, fmt.Errorf("no bomb %q", in.Kind)
	}
	manyDescriptors()
	told := time.Now()
	for n := range in.Most {
		if err := step(n, in); err != nil {
			return bombOut{Count: n, Error: errno(err), Text: err.Error()}, nil
		}
		if now := time.Now(); now.Sub(told) > 20*time.Millisecond || n == 0 {
			told = now
			berth.Progress(ctx, float64(n), float64(in.Most), in.Kind)
		}
	}
	return bombOut{Count: in.Most}, nil
}

func errno(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		return unix.ErrnoName(e)
	}
	return err.Error()
}

const mib = 1 << 20

// fork starts processes that stay.
func fork(int, bombIn) error {
	cmd := exec.Command("/app/probe", "sleep", "")
	if err := cmd.Start(); err != nil {
		return err
	}
	held.cmds = append(held.cmds, cmd)
	return nil
}

// thread makes a thread that stays, by clone itself: a Go program that cannot
// have one ends.
func thread(int, bombIn) error {
	const flags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM
	return rawThread(flags)
}

func memory(int, bombIn) error {
	b := make([]byte, mib)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	held.memory = append(held.memory, b)
	return nil
}

// shm is memory that belongs to a file without a name.
func shm(int, bombIn) error {
	fd, err := unix.MemfdCreate("shm", unix.MFD_NOEXEC_SEAL)
	if err != nil {
		return err
	}
	return pour(fd, mib)
}

// cache writes a file again and again, so that it stays in the page cache.
func cache(n int, in bombIn) error {
	fd, err := unix.Open(filepath.Join(in.Path, fmt.Sprintf("cache%d", n%64)), unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return pour(fd, mib)
}

// fill appends to one file.
func fill(n int, in bombIn) error {
	fd, err := unix.Open(filepath.Join(in.Path, "fill"), unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return pour(fd, mib)
}

var block = make([]byte, mib)

func pour(fd, n int) error {
	for n > 0 {
		m, err := unix.Write(fd, block[:n])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

func pipes(int, bombIn) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
		return err
	}
	held.files = append(held.files, p[0], p[1])
	_, _ = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, mib) // refused once the user has many
	return full(p[1])
}

func sockets(int, bombIn) error {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	held.files = append(held.files, p[0], p[1])
	_ = unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 64*mib)
	return full(p[0])
}

// full writes until nobody takes more.
func full(fd int) error {
	for {
		if _, err := unix.Write(fd, block); err != nil {
			if errors.Is(err, unix.EAGAIN) {
				return nil
			}
			return err
		}
	}
}

// epoll makes sets of descriptors; each watch costs memory of the kernel.
func epoll(n int, _ bombIn) error {
	for n == 0 && len(held.files) < 1000 {
		var p [2]int
		if err := unix.Pipe2(p[:], 0); err != nil {
			return err
		}
		held.files = append(held.files, p[0], p[1])
	}
	fd, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	for _, f := range held.files {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, f, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			return err
		}
	}
	return nil
}

func timers(int, bombIn) error {
	var id int32
	event := struct {
		value      uintptr
		signo, how int32
		pad        [48]byte
	}{how: 1} // SIGEV_NONE
	if _, _, e := syscall.Syscall(syscall.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id))); e != 0 {
		return e
	}
	return nil
}

func inotify(int, bombIn) error {
	fd, err := unix.InotifyInit1(0)
	held.files = append(held.files, fd)
	return err
}

// watches puts many watches on one instance.
func watches(n int, in bombIn) error {
	if n == 0 {
		if err := inotify(0, in); err != nil {
			return err
		}
	}
	name := filepath.Join(in.Path, fmt.Sprintf("%d-%s", n, strings.Repeat("w", 200)))
	if err := os.Mkdir(name, 0o700); err != nil {
		return err
	}
	_, err := unix.InotifyAddWatch(held.files[len(held.files)-1], name, unix.IN_CREATE)
	return err
}

func descriptors(int, bombIn) error {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	held.files = append(held.files, fd)
	return err
}

// manyDescriptors asks for as many as this process may ever have.
func manyDescriptors() {
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) == nil || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

func inodes(n int, in bombIn) error {
	fd, err := unix.Open(filepath.Join(in.Path, fmt.Sprintf("%d-%s", n, strings.Repeat("i", 200))), unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// dentries has the kernel remember names that do not exist.
func dentries(n int, in bombIn) error {
	var st unix.Stat_t
	name := filepath.Join(in.Path, fmt.Sprintf("%d-%s", n, strings.Repeat("d", 200)))
	if err := unix.Stat(name, &st); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// line prints a MiB without an end of the line.
func line(int, bombIn) error { return pour(1, mib) }

// lines prints a MiB of short lines.
func lines(int, bombIn) error {
	_, err := os.Stdout.WriteString(strings.Repeat("0123456789abcde\n", mib/16))
	return err
}

// denied is refused a thousand times.
func denied(int, bombIn) error {
	for range 1000 {
		if create("/tmp/denied") == nil {
			return errors.New("it was not denied")
		}
	}
	return nil
}

type spinIn struct {
	Seconds float64 `json:"seconds"`
	Threads int     `json:"threads"`
}

// spin uses all processors that it can have, and says how much time of theirs
// it got in how much time.
func spin(_ context.Context, in spinIn) (text, error) {
	begin := time.Now()
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		return text{}, err
	}
	done := make(chan struct{})
	for range in.Threads {
		go func() {
			runtime.LockOSThread()
			for time.Since(begin).Seconds() < in.Seconds {
			}
			done <- struct{}{}
		}()
	}
	for range in.Threads {
		<-done
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		return text{}, err
	}
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	return text{fmt.Sprintf("%f", used.Seconds()/time.Since(begin).Seconds())}, nil
}

// priority asks for more than its share of the processors in every way, and
// says what was granted.
func priority(context.Context, none) (text, error) {
	var got []string
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	param := int32(1)
	for _, policy := range []struct {
		name string
		n    uintptr
	}{{"fifo", 1}, {"rr", 2}} {
		if _, _, e := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, policy.n, uintptr(unsafe.Pointer(&param))); e == 0 {
			got = append(got, policy.name)
		}
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 6, Runtime: 10e6, Deadline: 20e6, Period: 20e6}, 0); err == nil {
		got = append(got, "deadline")
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -1); err == nil {
		got = append(got, "nice -1")
	}
	if err := unix.Setrlimit(unix.RLIMIT_RTPRIO, &unix.Rlimit{Cur: 1, Max: 1}); err == nil {
		got = append(got, "rtprio")
	}
	if _, _, e := syscall.Syscall(unix.SYS_IOPRIO_SET, 1, 0, 1<<13); e == 0 {
		got = append(got, "realtime io")
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 5); err != nil { // control: it may be nice
		return text{}, err
	}
	return text{strings.Join(got, " ")}, nil
}

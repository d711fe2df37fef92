package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// self is this program, as its children execute it.
const self = "/proc/self/exe"

// processes are started, spoken with, signalled and waited for.
func processes() []piece {
	return []piece{
		{"exec", execs}, {"pipes", pipes}, {"signals", signals}, {"groups", groups}, {"orphans", orphans}, {"goroutines", goroutines}, {"threads", threads},
		{"c-static", cProgram("work-static")}, {"c-musl", cProgram("work-musl")}, {"c-dynamic", cProgram("work-dynamic")},
	}
}

// execs starts programs with arguments and environment, from several threads.
func execs(w *world) error {
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			for range w.many(1000) / len(errs) {
				cmd := exec.CommandContext(w, "/app/workapp", "child", "print", "an argument", "", "ünïcode\n")
				cmd.Env, cmd.Dir = []string{"MARK=" + strconv.Itoa(i)}, w.dir
				out, err := cmd.Output()
				if want := fmt.Sprintf("[an argument  ünïcode\n] %d %s", i, w.dir); err == nil && string(out) != want {
					err = mismatch("output", out, want)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var ended *exec.ExitError
	if err := exec.CommandContext(w, self, "child", "exit", "7").Run(); !errors.As(err, &ended) || ended.ExitCode() != 7 {
		return mismatch("exit code", err, 7)
	}
	return nil
}

func pipes(w *world) error {
	cmd := exec.CommandContext(w, self, "child", "upper")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return err
	}
	n := w.many(10_000)
	for range n {
		if _, err := io.WriteString(in, "line\n"); err != nil {
			return err
		}
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		return err
	}
	if want := strings.Repeat("LINE\n", n); out.String() != want {
		return mismatch("bytes through a child", out.Len(), len(want))
	}
	return nil
}

// signals to own processes: to children, to oneself, queued, by pidfd.
func signals(w *world) error {
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGUSR1)
	defer signal.Stop(got)
	me := os.Getpid()
	for name, send := range map[string]func() error{
		"kill":   func() error { return unix.Kill(me, unix.SIGUSR1) },
		"tgkill": func() error { return unix.Tgkill(me, me, unix.SIGUSR1) },
		"pidfd": func() error {
			fd, err := unix.PidfdOpen(me, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.PidfdSendSignal(fd, unix.SIGUSR1, nil, 0)
		},
	} {
		if err := send(); err != nil {
			return fmt.Errorf("%s to oneself: %w", name, err)
		}
		<-got
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT, syscall.SIGHUP} {
		cmd, err := w.waiting()
		if err != nil {
			return err
		}
		if err := errors.Join(cmd.Process.Signal(syscall.Signal(0)), cmd.Process.Signal(syscall.SIGSTOP), cmd.Process.Signal(syscall.SIGCONT), cmd.Process.Signal(sig)); err != nil {
			return fmt.Errorf("%v to a child: %w", sig, err)
		}
		var ended *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != sig {
			return mismatch("end by a signal", err, sig)
		}
	}
	return nil
}

// waiting starts a child that waits for its end, and returns once it does.
func (w *world) waiting() (*exec.Cmd, error) {
	cmd := exec.CommandContext(w, self, "child", "wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(out, make([]byte, 1))
	return cmd, err
}

// groups are signalled together, and sessions are made, as shells and
// supervisors do.
func groups(w *world) error {
	var cmds []*exec.Cmd
	group := 0
	for range 3 {
		cmd := exec.CommandContext(w, self, "child", "wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
		if err := cmd.Start(); err != nil {
			return err
		}
		if group == 0 {
			group = cmd.Process.Pid
		}
		cmds = append(cmds, cmd)
	}
	if err := unix.Kill(-group, unix.SIGKILL); err != nil {
		return err
	}
	for _, cmd := range cmds {
		var ended *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &ended) {
			return mismatch("end of a group", err, "killed")
		}
	}
	cmd := exec.CommandContext(w, self, "child", "print", "session")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal comes when the starting thread ends
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	if err == nil && !bytes.HasPrefix(out, []byte("[session]")) {
		err = mismatch("output", out, "[session]")
	}
	return err
}

// orphans outlive their parent and are adopted: a double fork, as daemons do.
func orphans(w *world) error {
	r, wr, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	for range w.many(20) {
		cmd := exec.CommandContext(w, self, "child", "daemon")
		cmd.ExtraFiles = []*os.File{wr}
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("%w: %s", err, out), wr.Close())
		}
	}
	wr.Close()
	raw, err := io.ReadAll(r) // until the last of them has ended
	if err == nil && len(raw) != w.many(20) {
		err = mismatch("words of orphans", len(raw), w.many(20))
	}
	return err
}

// goroutines storm, with channels, timers and garbage.
func goroutines(w *world) error {
	var wg sync.WaitGroup
	var sum atomic.Int64
	n := w.many(10_000)
	ch := make(chan int)
	for i := range n {
		wg.Go(func() {
			time.Sleep(time.Microsecond)
			ch <- len(bytes.Repeat([]byte{1}, 1+i%1000)) - i%1000
		})
	}
	go func() { wg.Wait(); close(ch) }()
	for v := range ch {
		sum.Add(int64(v))
	}
	runtime.GC()
	if sum.Load() != int64(n) {
		return mismatch("sum", sum.Load(), n)
	}
	return nil
}

// threads of the kernel's: goroutines that keep one each.
func threads(w *world) error {
	var wg sync.WaitGroup
	var ids sync.Map
	block := make(chan struct{})
	n := 20
	var started sync.WaitGroup
	for range n {
		started.Add(1)
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with it
			ids.Store(unix.Gettid(), true)
			started.Done()
			<-block
		})
	}
	started.Wait()
	close(block)
	wg.Wait()
	count := 0
	ids.Range(func(any, any) bool { count++; return true })
	if count != n {
		return mismatch("threads", count, n)
	}
	return nil
}

// cProgram is work of programs that were built with C libraries.
func cProgram(name string) func(*world) error {
	return func(w *world) error {
		cmd := exec.CommandContext(w, "/app/"+name, w.dir, strconv.Itoa(w.many(1000)))
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "ok\n" {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New(name)), out)
		}
		return nil
	}
}

// child is what the work starts: this program with arguments.
func child(args []string) int {
	if err := childAct(args[0], args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childAct(what string, args []string) error {
	switch what {
	case "print":
		dir, err := os.Getwd()
		fmt.Printf("%v %s %s", args, os.Getenv("MARK"), dir)
		return err
	case "exit":
		code, err := strconv.Atoi(args[0])
		if err == nil {
			os.Exit(code)
		}
		return err
	case "upper":
		raw, err := io.ReadAll(os.Stdin)
		os.Stdout.Write(bytes.ToUpper(raw))
		return err
	case "wait":
		os.Stdout.WriteString(".")
		for {
			unix.Pause()
		}
	case "daemon":
		cmd := exec.Command(self, "child", "say")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd.Start()
	case "say":
		_, err := os.NewFile(3, "pipe").WriteString(".")
		return err
	case "map":
		return childMap(args[0])
	case "flock", "posix-lock":
		return childLock(what, args[0])
	case "receive":
		return receiveDescriptor()
	case "talk":
		return talkTo(args[0], args[1])
	}
	return nil
}

func childMap(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	m[17] = 99
	return unix.Msync(m, unix.MS_SYNC)
}

func childLock(what, name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if what == "flock" {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	} else {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 10})
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		fmt.Println("held")
		return nil
	}
	return fmt.Errorf("the lock was not held: %w", err)
}

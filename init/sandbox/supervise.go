package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supervise is `agent-init`: PID 1's child and the first process of the app's
// pid namespace. It prepares what the app will see, starts the enforcer, gives
// its own privileges up, reaps, and returns the exit code.
func Supervise() int {
	// What it gives up, each of its threads gives up, with all the others standing
	// still: with few threads a start is 2.5 ms shorter.
	runtime.GOMAXPROCS(1)
	e := &enforcer{report: reporter{FDReport}}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := e.prepare(); err != nil {
		return e.fail(err) // the end of this process is the end of its namespace
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(e.child.pid, s.(syscall.Signal)) // it may have ended by itself
		}
	}()
	return reap(e.child.pid)
}

// prepare does everything that the enforcer can not do to itself. The enforcer
// is handed its plan last: before, it does nothing.
func (e *enforcer) prepare() error {
	if err := e.readSpec(); err != nil {
		return &stepError{StepSpec, err}
	}
	if err := e.do(outside); err != nil {
		return err
	}
	if err := e.handOver(); err != nil {
		return &stepError{StepStart, fmt.Errorf("cannot hand the plan to the enforcer: %w", err)}
	}
	return nil
}

// readSpec takes what PID 1 hands over and what the app's tree will hide.
func (e *enforcer) readSpec() (err error) {
	if err := ownNamespaces(); err != nil {
		return err
	}
	if err := readJSON(FDSpec, &e.Spec); err != nil {
		return fmt.Errorf("cannot read spec: %w", err)
	}
	if e.policy, err = e.Spec.check(); err != nil {
		return err
	}
	// Whatever else came along must not reach the enforcer.
	if err := unix.CloseRange(FDCgroup+uint(e.Spec.Cgroups+len(e.Spec.Invoke)), ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot mark descriptors: %w", err)
	}
	return e.readFilters()
}

// ownNamespaces makes sure that PID 1 shares no namespace with the app that it
// should have made for it.
func ownNamespaces() error {
	for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		own, err := os.Readlink("/proc/thread-self/ns/" + kind)
		if err != nil {
			return fmt.Errorf("cannot read own %s namespace: %w", kind, err)
		}
		pid1, err := os.Readlink("/proc/1/ns/" + kind)
		if err != nil {
			return fmt.Errorf("cannot read PID 1's %s namespace: %w", kind, err)
		}
		if own == pid1 {
			return fmt.Errorf("the %s namespace is PID 1's own, not the app's", kind)
		}
	}
	return nil
}

// child is the enforcer's process, and the pipe that it reads its plan from.
type child struct {
	pid  int
	plan *os.File
}

// startEnforcer executes this program again, from the root that is left behind,
// with the descriptors of the contract and those of the grants.
func (e *enforcer) startEnforcer() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	defer null.Close()
	// The descriptors of the cgroup are closed; those of Invoke take their place.
	files := []uintptr{null.Fd(), 1, 2, r.Fd(), FDReport, FDGo, FDApp}
	for i := range e.Spec.Invoke {
		files = append(files, uintptr(FDCgroup+e.Spec.Cgroups+i))
	}
	for i, g := range e.Grants {
		e.Grants[i].FD = len(files)
		files = append(files, uintptr(g.FD))
	}
	e.child.plan = w
	e.child.pid, err = syscall.ForkExec("/proc/self/exe", []string{"agent-init", "enforce"}, &syscall.ProcAttr{
		Env:   []string{},
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	for _, fd := range files[FDCgroup:] {
		unix.Close(int(fd)) // the enforcer has its own
	}
	return err
}

// dropSupervisor starts the enforcer and leaves the supervisor nothing but
// signals: CAP_KILL reaches the app under its other uid, and no further than
// the pid namespace.
func dropSupervisor(e *enforcer) (string, error) {
	if err := e.startEnforcer(); err != nil {
		return "", fmt.Errorf("cannot start the enforcer: %w", err)
	}
	var kept uint64
	if e.Spec.Profile != ProfileNativeUser {
		kept = 1 << unix.CAP_KILL
		if err := allThreads.become(supervisorID, supervisorID); err != nil {
			return "", err
		}
	}
	if err := allThreads.keep(kept); err != nil {
		return "", err
	}
	if err := allThreads.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return "", err
	}
	return "", allThreads.call("forbid tracing", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
}

// handOver gives the enforcer its plan and lets go of everything else.
func (e *enforcer) handOver() error {
	raw, err := json.Marshal(e.plan)
	if err != nil {
		return err
	}
	_, err = e.child.plan.Write(raw)
	clear(raw) // the secrets are the app's
	e.Spec.Secrets = nil
	if err != nil {
		return err
	}
	for fd := FDReport; fd < FDCgroup; fd++ {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return e.child.plan.Close()
}

// reap waits for every process of the namespace until the app's own ends, and
// returns the exit code that says how.
func reap(app int) int {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return ExitFailed
		case pid == app && status.Exited():
			return status.ExitStatus()
		case pid == app && status.Signaled():
			return ExitSignal + int(status.Signal())
		}
	}
}

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supervise is `agent-init`: PID 1's child and the first process of the app's
// pid namespace. It prepares what the app will see, starts the enforcer, gives
// its own privileges up, reaps, and returns the exit code.
func Supervise() int {
	e := &enforcer{report: reporter{FDReport}}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	app, err := e.prepare()
	if err == nil {
		err = e.dropSupervisor()
	}
	if err != nil {
		return e.fail(err) // the end of this process is the end of its namespace
	}
	for _, fd := range []int{FDReport, FDGo, FDApp} {
		unix.Close(fd)
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(app, s.(syscall.Signal)) // it may have ended by itself
		}
	}()
	return reap(app)
}

// prepare does everything that needs privileges and starts the enforcer.
func (e *enforcer) prepare() (app int, err error) {
	if err := e.readSpec(); err != nil {
		return 0, &stepError{StepSpec, err}
	}
	if err := e.do(outside); err != nil {
		return 0, err
	}
	if app, err = e.startEnforcer(); err != nil {
		return 0, &stepError{StepStart, fmt.Errorf("cannot start the enforcer: %w", err)}
	}
	return app, nil
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
	if err := unix.CloseRange(FDCgroup+uint(e.Spec.Cgroups), ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
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

// startEnforcer executes this program again, from the root that is left
// behind, and hands it the plan.
func (e *enforcer) startEnforcer() (int, error) {
	raw, err := json.Marshal(e.plan)
	if err != nil {
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"agent-init", "enforce"}, &syscall.ProcAttr{
		Env:   []string{},
		Files: []uintptr{null.Fd(), 1, 2, r.Fd(), FDReport, FDGo, FDApp},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, errors.Join(err, w.Close())
	}
	_, err = w.Write(raw)
	return pid, errors.Join(err, w.Close())
}

// dropSupervisor leaves the supervisor nothing but signals: CAP_KILL reaches
// the app under its other uid, and no further than its pid namespace.
func (e *enforcer) dropSupervisor() (err error) {
	var kept uint64
	if e.Spec.Profile != ProfileNativeUser {
		kept = 1 << unix.CAP_KILL
		err = allThreads.become(supervisorID, supervisorID)
	}
	if err == nil {
		err = allThreads.keep(kept)
	}
	if err == nil {
		err = allThreads.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	if err == nil {
		err = allThreads.call("forbid tracing", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	}
	if err != nil {
		return &stepError{StepStart, fmt.Errorf("supervisor: %w", err)}
	}
	return nil
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

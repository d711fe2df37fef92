package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/berthos/berth/init/policy"
	"golang.org/x/sys/unix"
)

// Enforce is `agent-init enforce`: it takes everything away from itself that
// the policy does not grant, and becomes the app. It returns only if that
// fails, with the exit code.
func Enforce() int {
	runtime.LockOSThread() // identity, domain and filters belong to a thread
	e := &enforcer{report: reporter{FDReport}, abi: kernelABI()}
	if err := e.enforce(); err != nil {
		return e.fail(err)
	}
	if err := awaitGo(); err != nil {
		return ExitNoGo
	}
	e.fail(&stepError{StepExec, e.execute()})
	return ExitNotStarted
}

// enforce does every step inside and reports that all are done.
func (e *enforcer) enforce() (err error) {
	if err := readJSON(FDSpec, &e.plan); err != nil {
		return &stepError{StepSpec, fmt.Errorf("cannot read plan: %w", err)}
	}
	if e.policy, err = e.Spec.check(); err != nil {
		return &stepError{StepSpec, err}
	}
	if err := e.do(inside); err != nil {
		return err
	}
	if err := e.complete(); err != nil {
		return err
	}
	return e.report.send(Report{Enforced: &EnforcedDone{
		PolicySHA256: policy.Digest(e.Spec.Policy),
		ABI:          e.abi,
		Steps:        e.Done,
		Weaker:       e.Weaker,
	}})
}

// fail reports why nothing is executed.
func (e *enforcer) fail(err error) int {
	failed := &StepFailed{Step: StepStart, Reason: err.Error()}
	if at := (*stepError)(nil); errors.As(err, &at) {
		failed = &StepFailed{Step: at.step, Reason: at.err.Error()}
	}
	if err := e.report.send(Report{Failed: failed}); err != nil {
		fmt.Fprintf(os.Stderr, "agent-init: step %s: %s (%v)\n", failed.Step, failed.Reason, err)
	}
	return ExitFailed
}

// awaitGo waits until the host has compared the policy's digest with its own.
func awaitGo() error {
	var b [1]byte
	for {
		n, err := unix.Read(FDGo, b[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n != 1 || b[0] != 'g':
			return errors.New("not told to go")
		default:
			return nil
		}
	}
}

// execute becomes the app: its socket where the protocol wants it, a clean
// environment, and the folder it works in.
func (e *enforcer) execute() error {
	dir := "/scratch"
	if slices.ContainsFunc(e.Grants, func(g grant) bool { return g.Path == "/workspace" }) {
		dir = "/workspace"
	}
	unix.Umask(0o022)
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("cannot enter %s: %w", dir, err)
	}
	if err := e.handSockets(); err != nil {
		return err
	}
	return fmt.Errorf("cannot execute %s: %w", e.policy.Argv[0], syscall.Exec(e.policy.Argv[0], e.policy.Argv, e.environment()))
}

// handSockets puts the sockets of the app where the protocol wants them: its own
// and those of the apps that it may call. They take the place of the report's
// descriptor, which moves out of the way.
func (e *enforcer) handSockets() error {
	report, err := unix.FcntlInt(FDReport, unix.F_DUPFD_CLOEXEC, FDCgroup+len(e.Spec.Invoke))
	if err != nil {
		return fmt.Errorf("cannot keep the report: %w", err)
	}
	e.report.fd = report
	if err := unix.Dup3(FDApp, FDAppInside, 0); err != nil {
		return fmt.Errorf("cannot hand over the app's socket: %w", err)
	}
	for i, app := range e.Spec.Invoke { // upwards: none is overwritten before it was copied
		if err := unix.Dup3(FDCgroup+i, FDInvokeInside+i, 0); err != nil {
			return fmt.Errorf("cannot hand over the socket for app %s: %w", app, err)
		}
	}
	return nil
}

// ownVariable says whether environment gives a variable a value of its own, or
// may some day. Spec.check lets no secret have such a name.
func ownVariable(name string) bool {
	return strings.HasPrefix(name, "BERTH_") || slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG"}, name)
}

// environment is what the app is given, and nothing of what this process was.
func (e *enforcer) environment() []string {
	env := []string{
		"PATH=/app",
		"HOME=/scratch",
		"TMPDIR=/scratch",
		"LANG=C.UTF-8",
		"BERTH_APP=" + e.policy.App,
		fmt.Sprintf("BERTH_LISTEN_FD=%d", FDAppInside),
	}
	// Of an app with one process, the host compares all that its code offers.
	if whole, err := policy.Parse(e.Spec.Policy); err != nil || len(whole.Workers) > 0 {
		env = append(env, "BERTH_EXPORTS="+strings.Join(e.policy.Exports, ","))
	}
	if len(e.Spec.Invoke) > 0 {
		var sockets []string
		for i, app := range e.Spec.Invoke {
			sockets = append(sockets, fmt.Sprintf("%s=%d", app, FDInvokeInside+i))
		}
		env = append(env, "BERTH_INVOKE="+strings.Join(sockets, ","))
	}
	for _, name := range e.policy.Secrets {
		env = append(env, name+"="+e.Spec.Secrets[name])
	}
	return env
}

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine/runtimedir"
)

// Job prepares the sandbox's first process. It runs in the keeper, before the
// process starts, with the keeper's own mount namespace if the Spec asked for one.
type Job func(t Task) (*exec.Cmd, error)

// Task is what a job gets.
type Task struct {
	Plan  json.RawMessage
	Files []*os.File
	// Report is for the new process: what it writes there (Fail) before it
	// executes something else is the reason why the start failed. It must be
	// close-on-exec in that process.
	Report *os.File
	// AtEnd adds what is to be done when the process has ended, last first.
	AtEnd func(func())
}

// Main is the whole life of a keeper. The program calls it when its first
// argument is Arg, and exits with the result.
func Main(jobs map[string]Job) int {
	// The kernel sends a parent-death signal when the thread that forked ends.
	runtime.LockOSThread()
	unix.CloseOnExec(fdControl)
	control := os.NewFile(fdControl, "control")
	dec := json.NewDecoder(control)
	var o order
	if err := dec.Decode(&o); err != nil {
		fmt.Fprintln(os.Stderr, "berth starts this command itself; it is not for people")
		return 2
	}
	out := json.NewEncoder(control)
	var undo []func()
	end := keep(jobs, o, control, out, func(f func()) { undo = append(undo, f) })
	for _, f := range slices.Backward(undo) {
		f()
	}
	if err := runtimedir.Remove(o.Dir); err != nil {
		end.Left = err.Error()
	}
	_ = out.Encode(report{Ended: end}) // berth may be gone
	return 0
}

func keep(jobs map[string]Job, o order, control *os.File, out *json.Encoder, atEnd func(func())) *End {
	fail := func(err error) *End {
		var f *Failure
		if !errors.As(err, &f) {
			f = &Failure{Step: "start sandbox", Reason: err.Error(), Hint: hint.Of(err)}
		}
		_ = out.Encode(report{Failed: f})
		return &End{Status: "not started"}
	}
	job := jobs[o.Job]
	if job == nil {
		return fail(fmt.Errorf("no job %q in this program", o.Job))
	}
	reports, theirs, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer reports.Close()
	files, err := inherited(o)
	if err != nil {
		return fail(err)
	}
	cmd, err := job(Task{Plan: o.Plan, Files: files, Report: theirs, AtEnd: atEnd})
	if err != nil {
		theirs.Close()
		return fail(err)
	}
	console := &tail{}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Start()
	theirs.Close()
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		var path *os.PathError // "fork/exec /proc/self/exe" tells a user nothing
		if errors.As(err, &path) {
			err = path.Err
		}
		return fail(&Failure{Step: "start the sandbox's first process", Reason: err.Error()})
	}
	go func() { // berth sends nothing more: this ends when berth closes or dies
		_, _ = io.Copy(io.Discard, control)
		_ = cmd.Process.Kill()
	}()
	var f *Failure
	if raw, _ := io.ReadAll(io.LimitReader(reports, 8<<10)); len(raw) > 0 {
		f = parseFailure(raw)
		_ = cmd.Process.Kill()
	} else {
		_ = out.Encode(report{Started: true})
	}
	err = cmd.Wait()
	if f != nil {
		return fail(f)
	}
	return &End{Status: cmd.ProcessState.String(), OK: err == nil, Console: console.String()}
}

// inherited opens the descriptors that the order names. Those to hold stay
// open until the keeper ends.
func inherited(o order) (files []*os.File, err error) {
	for fd := firstFile; fd < firstFile+o.Files; fd++ {
		files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("inherited %d", fd)))
	}
	return files, CloseFrom(firstFile)
}

func (f *Failure) Error() string { return "cannot " + f.Step + ": " + f.Reason }

func parseFailure(raw []byte) *Failure {
	var f Failure
	if json.Unmarshal(raw, &f) != nil {
		return &Failure{Step: "start sandbox", Reason: firstLine(string(raw))}
	}
	return &f
}

// CloseFrom has every descriptor from first on closed by the next exec: what
// berth's own parent left open is not for a sandbox.
func CloseFrom(first int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("cannot list descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// Fail writes to a Task's Report, from the process that the job started.
func Fail(report *os.File, step string, err error) {
	_ = json.NewEncoder(report).Encode(Failure{Step: step, Reason: err.Error(), Hint: hint.Of(err)})
}

// DieWithParent has the kernel kill this process when the thread that started
// it ends. It must be called on the thread that will execute the next program,
// and again after every change of identity.
func DieWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("cannot ask to die with the parent: %w", err)
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
	// Note adds a sentence on what fell back to something slower or weaker.
	Note func(string)
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
	k := &keeping{order: o, control: control, out: json.NewEncoder(control)}
	end, err := k.run(jobs[o.Job])
	if err != nil {
		k.tell(report{Failed: asFailure(err)})
		end = &End{Status: "not started"}
	}
	for _, f := range slices.Backward(k.undo) {
		f()
	}
	if err := runtimedir.Remove(o.Dir); err != nil {
		end.Left = err.Error()
	}
	k.tell(report{Ended: end})
	return 0
}

// keeping is what a keeper works with.
type keeping struct {
	order
	control *os.File
	out     *json.Encoder
	notes   []string
	undo    []func()
}

// tell reports to berth, which may be gone.
func (k *keeping) tell(r report) { _ = k.out.Encode(r) }

// run starts the sandbox's first process and waits for its end.
func (k *keeping) run(job Job) (*End, error) {
	if job == nil {
		return nil, fmt.Errorf("no job %q in this program", k.Job)
	}
	reports, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reports.Close()
	console := &tail{}
	cmd, err := k.start(job, theirs, console)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	go func() { // berth sends nothing more: this ends when berth closes or dies
		_, _ = io.Copy(io.Discard, k.control)
		_ = cmd.Process.Kill()
	}()
	if raw, _ := io.ReadAll(io.LimitReader(reports, 8<<10)); len(raw) > 0 {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed"
		return nil, parseFailure(raw)
	}
	k.tell(report{Started: true, Notes: k.notes})
	err = cmd.Wait()
	return &End{Status: cmd.ProcessState.String(), OK: err == nil, Console: console.String()}, nil
}

// start has the job prepare the process and starts it.
func (k *keeping) start(job Job, reports *os.File, console io.Writer) (*exec.Cmd, error) {
	files, err := inherited(k.order)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	cmd, err := job(Task{
		Plan: k.Plan, Files: files, Report: reports,
		Note:  func(s string) { k.notes = append(k.notes, s) },
		AtEnd: func(f func()) { k.undo = append(k.undo, f) },
	})
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.WaitDelay = 2 * time.Second
	if err = cmd.Start(); err == nil {
		return cmd, nil
	}
	var path *os.PathError // "fork/exec /proc/self/exe" tells a user nothing
	if errors.As(err, &path) {
		err = path.Err
	}
	return nil, &Failure{Step: "start the sandbox's first process", Reason: err.Error()}
}

func asFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Step: "start sandbox", Reason: err.Error(), Hint: hint.Of(err)}
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

// Inherited takes the socket over by which whoever started this program speaks
// with it, and makes sure that no further program inherits what came along.
func Inherited(fd int) (net.Conn, error) {
	if err := CloseFrom(fd); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "parent")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, errors.New("berth starts this command itself; it is not for people")
	}
	return conn, nil
}

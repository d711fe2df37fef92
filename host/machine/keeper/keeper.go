// Package keeper owns the process that stands between berth and a sandbox: it
// starts the sandbox's first process, ends it when berth is gone, and removes
// what must not stay behind. berth may die in any way; the keeper notices by the
// end of its control socket.
package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine/runtimedir"
)

// Arg is the first argument by which a program knows that it is a keeper.
const Arg = "__keeper"

// Spec is what a keeper has to run.
type Spec struct {
	Job     string // a name that the program gave to Main
	Plan    any    // for the job, as JSON
	Files   []*os.File
	Hold    []*os.File // locks that last as long as the sandbox
	Dir     string     // runtime folder, removed at the end
	Mounts  bool       // give the keeper a mount namespace of its own (needs root)
	Program string     // "": this program
}

// order is the first message on the control socket.
type order struct {
	Job   string          `json:"job"`
	Plan  json.RawMessage `json:"plan"`
	Dir   string          `json:"dir"`
	Files int             `json:"files"` // descriptors from firstFile on
	Hold  int             `json:"hold"`  // and after them
}

// report is a message of the keeper: it started, failed or ended.
type report struct {
	Started bool     `json:"started,omitempty"`
	Notes   []string `json:"notes,omitempty"` // with Started
	Failed  *Failure `json:"failed,omitempty"`
	Ended   *End     `json:"ended,omitempty"`
}

// Failure says why a sandbox's first process could not be started.
type Failure struct {
	Step   string `json:"step"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
}

// End says how a sandbox's first process ended.
type End struct {
	Status  string `json:"status"` // "exit status 0", "signal: killed"
	OK      bool   `json:"ok"`     // exit status 0
	Console string `json:"console,omitempty"`
	Left    string `json:"left,omitempty"` // what could not be removed
}

// Descriptors of a keeper.
const (
	fdControl = 3
	firstFile = 4
)

// Keeper is the running process, seen from berth.
type Keeper struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	stderr  *os.File // in memory, so that writing to it can neither block nor fail
	dir     string
	started chan struct{} // closed once the sandbox's process runs, or never will
	gone    chan struct{} // closed once nothing is left

	failure error    // set before started is closed
	notes   []string // too
	end     End      // set before gone is closed
}

// Start runs a keeper and waits until the sandbox's first process has started.
// The files stay the caller's. After an error nothing is left.
func Start(s Spec) (*Keeper, error) {
	plan, err := json.Marshal(s.Plan)
	if err != nil {
		return nil, fmt.Errorf("cannot start keeper: %w", err)
	}
	k, err := launch(s)
	if err != nil {
		return nil, fmt.Errorf("cannot start keeper: %w", err)
	}
	go k.watch()
	err = json.NewEncoder(k.control).Encode(order{s.Job, plan, s.Dir, len(s.Files), len(s.Hold)})
	<-k.started
	if k.failure != nil {
		<-k.gone
		return nil, k.failure
	}
	if err != nil {
		k.Kill()
		<-k.gone
		return nil, fmt.Errorf("cannot start keeper: %w", err)
	}
	return k, nil
}

func launch(s Spec) (*Keeper, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	fd, err := unix.MemfdCreate("keeper-stderr", unix.MFD_CLOEXEC)
	if err != nil {
		ours.Close()
		return nil, err
	}
	k := &Keeper{control: ours, stderr: os.NewFile(uintptr(fd), "stderr"), dir: s.Dir, started: make(chan struct{}), gone: make(chan struct{})}
	program := s.Program
	if program == "" {
		program = "/proc/self/exe"
	}
	k.cmd = &exec.Cmd{
		Path:        program,
		Args:        []string{"berth-keeper", Arg},
		Env:         os.Environ(),
		Stderr:      k.stderr,
		ExtraFiles:  append(append([]*os.File{theirs}, s.Files...), s.Hold...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // a terminal's Ctrl-C is for berth
	}
	if s.Mounts {
		k.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	if err := k.cmd.Start(); err != nil {
		ours.Close()
		k.stderr.Close()
		return nil, err
	}
	return k, nil
}

// watch follows the reports until the keeper is gone.
func (k *Keeper) watch() {
	defer close(k.gone)
	dec := json.NewDecoder(io.LimitReader(k.control, 1<<20))
	starting := true
	settle := func(err error) {
		if starting {
			starting = false
			k.failure = err
			close(k.started)
		}
	}
	ended := false
	for {
		var r report
		if err := dec.Decode(&r); err != nil {
			break
		}
		switch {
		case r.Started:
			k.notes = r.Notes
			settle(nil)
		case r.Failed != nil:
			settle(hint.Errorf(r.Failed.Hint, "cannot %s: %s", r.Failed.Step, r.Failed.Reason))
		case r.Ended != nil:
			k.end, ended = *r.Ended, true
		}
	}
	err := k.cmd.Wait()
	k.control.Close()
	if !ended { // the keeper was killed or crashed: its duty is ours
		k.end = End{Status: "its keeper died: " + k.lastWords(err)}
		if err := runtimedir.Remove(k.dir); err != nil {
			k.end.Left = err.Error()
		}
	}
	k.stderr.Close()
	settle(errors.New("cannot start sandbox: " + k.end.Status))
}

// lastWords is how the keeper ended and the first line of what it printed.
func (k *Keeper) lastWords(err error) string {
	words := "exit status 0"
	if err != nil {
		words = err.Error()
	}
	buf := make([]byte, 512)
	if n, _ := k.stderr.ReadAt(buf, 0); n > 0 {
		words += ": " + firstLine(string(buf[:n]))
	}
	return words
}

// Wait blocks until nothing of the sandbox is left and says how it ended.
func (k *Keeper) Wait() End {
	<-k.gone
	return k.end
}

// Notes says what fell back to something slower or weaker, as sentences.
func (k *Keeper) Notes() []string { return k.notes }

// Kill ends the sandbox at once.
func (k *Keeper) Kill() { k.control.CloseWrite() }

// PID is the keeper's process id.
func (k *Keeper) PID() int { return k.cmd.Process.Pid }

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	a, b, err := SocketPair()
	if err != nil {
		return nil, nil, err
	}
	return a.(*net.UnixConn), b, nil
}

// SocketPair returns a connected stream: one end for this process, the other
// to be inherited.
func SocketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "socketpair")
	f := os.NewFile(uintptr(fds[0]), "socketpair")
	defer f.Close()
	if ours, err = net.FileConn(f); err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("cannot use a socket pair: %w", err)
	}
	return ours, theirs, nil
}

// MemFile returns a file in memory that holds raw, to be inherited.
func MemFile(name string, raw []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make memory for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(raw); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	return f, nil
}

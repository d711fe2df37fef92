package probe

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
	"syscall"

	"golang.org/x/sys/unix"
)

// Order says what to attack, and from where.
type Order struct {
	At    Position `json:"at"`
	World World    `json:"world"`
	IDs   []string `json:"ids,omitempty"` // empty: every probe of World
}

// Result is what came of one probe.
type Result struct {
	ID    string        `json:"id"`
	Errno syscall.Errno `json:"errno"`
	Error string        `json:"error,omitempty"` // empty: the attack succeeded
}

// Arguments by which a program is started again as part of an attack. Every
// program that runs probes hands its arguments to Maybe first.
const (
	argOrder   = "probe-order" // followed by an Order
	argNothing = "probe-nothing"
	argMount   = "probe-mount"
	argBetween = "probe-between" // followed by arguments: executes them and waits
	argHold    = "probe-hold"    // followed by a token and a Victim: holds it until its input ends
	argLeave   = "probe-leave"   // followed by arguments: executes them and does not
)

// Maybe runs this program as a part of an attack, if its arguments say so.
func Maybe(args []string, out io.Writer) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch rest := args[2:]; args[1] {
	case argNothing:
		return 0, true
	case argMount:
		return int(errnoOf(unix.Mount("probe", "/proc", "tmpfs", 0, ""))), true
	case argBetween:
		return fine(start(rest, out).Run()), true
	case argLeave: // in a session of its own, so that nothing ends it with this
		cmd := start(rest, out)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return fine(cmd.Start()), true
	case argHold:
		var v Victim
		if len(rest) != 2 || json.Unmarshal([]byte(rest[1]), &v) != nil {
			return fine(errors.New("cannot hold: no victim")), true
		}
		if err := v.Hold(); err != nil {
			return fine(err), true
		}
		fmt.Fprintln(out, "held")
		_, err := io.Copy(io.Discard, os.Stdin)
		return fine(err), true
	case argOrder:
		var o Order
		if len(rest) != 1 || json.Unmarshal([]byte(rest[0]), &o) != nil {
			return fine(errors.New("cannot attack: no order")), true
		}
		return fine(o.Run(out)), true
	}
	return 0, false
}

// Args are the arguments that make a program run an order.
func (o Order) Args() []string {
	raw, err := json.Marshal(o)
	if err != nil { // of strings and numbers: it can be encoded
		return nil
	}
	return []string{argOrder, string(raw)}
}

// Args are the arguments that make a program hold a victim.
func (v Victim) Args() []string {
	raw, err := json.Marshal(v)
	if err != nil { // of strings and numbers: it can be encoded
		return nil
	}
	return []string{argHold, v.Token, string(raw)}
}

func fine(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		return 1
	}
	return 0
}

// start is this program once more, with another output.
func start(args []string, out io.Writer) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd
}

// Run attacks from a position, where necessary in a process that it starts, and
// writes one Result a line.
func (o Order) Run(out io.Writer) error {
	here := o
	here.At = Main
	switch o.At {
	case Thread, Fork, Vfork, Sibling:
		return onThread(func() error { return o.attack(out) })
	case ExecThread:
		return onThread(func() error { return become("/proc/self/exe", here.Args()) })
	case Memory:
		fd, err := MemoryProgram()
		if err != nil {
			return err
		}
		return become("/proc/self/fd/"+strconv.Itoa(fd), here.Args())
	case Grandchild:
		return start(append([]string{argBetween}, here.Args()...), out).Run()
	case Orphan:
		return o.orphan(append([]string{argLeave}, here.Args()...), out)
	case Main:
		runtime.LockOSThread()
		return o.attack(out)
	}
	return fmt.Errorf("cannot attack from %q: there is no such position", o.At)
}

// InChild says that Run replaces the process that calls it, so that one which
// is needed has to start a child for it.
func (o Order) InChild() bool { return o.At == ExecThread || o.At == Memory }

// Child runs an order in a child of this process.
func (o Order) Child(out io.Writer) error { return start(o.Args(), out).Run() }

func become(program string, args []string) error {
	return syscall.Exec(program, append([]string{"attack"}, args...), os.Environ())
}

// onThread runs f on another thread than this one.
func onThread(f func() error) error {
	done := make(chan error)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		done <- f()
	}()
	return <-done
}

// orphan passes on what a process prints whose parent has ended.
func (o Order) orphan(args []string, out io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = start(args, w).Run()
	w.Close()
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r) // until the last of them has ended
	return err
}

// names says whether an order names a probe: one without IDs those of All.
func (o Order) names(p Probe) bool {
	if len(o.IDs) == 0 {
		return p.Group() != "MA" && p.Group() != "GR"
	}
	return slices.Contains(o.IDs, p.ID)
}

// attack runs the probes of an order in this thread.
func (o Order) attack(out io.Writer) error {
	for _, p := range slices.Concat(All(o.World), o.World.Cross(), []Probe{o.World.Narrowed()}, o.World.GuestRoot()) {
		if !o.names(p) || !o.At.Does(p) {
			continue
		}
		r := Result{ID: p.ID}
		if err := o.At.Try(p, o.World); err != nil {
			r.Errno, r.Error = errnoOf(err), err.Error()
		}
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return nil
}

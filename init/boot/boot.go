// Package boot owns PID 1: the table of boot steps, the apps that it starts
// through the enforcer and keeps running, and the ordered end of the sandbox.
package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
)

// Folders of PID 1. None of them can be reached by an app.
const (
	runDir    = "/run/berth"
	appsDir   = runDir + "/apps"   // <number>/sock: names are too long for the path of a socket
	codeDir   = runDir + "/code"   // <digest>/, one mount each
	sharesDir = runDir + "/shares" // <name>/, one mount each
	rootApps  = "/apps"            // apps in the verified root
	enforcer  = "/sbin/agent-init"
)

// Exit codes of PID 1 on the native machine; a VM reboots instead.
const (
	ExitOK     = 0 // the sandbox ended in order
	ExitFailed = 1 // a fatal step; the reason is on stderr
	ExitUsage  = 2
)

// NativeConfig is the second argument of PID 1 on the native machine.
type NativeConfig struct {
	Cgroups []NativeCgroup `json:"cgroups"`
}

// NativeCgroup lists the descriptors of writable cgroup.procs files, inherited
// from the machine, that the enforcer of a process of an app joins. App is that
// process's name (policy.Instance).
type NativeCgroup struct {
	App string `json:"app"`
	FDs []int  `json:"fds"`
}

// World is what PID 1 gets from its surroundings.
type World struct {
	Args   []string // profile, then NativeConfig as JSON
	Stderr io.Writer
	System *System
}

// Main runs PID 1 until the sandbox ends and returns its exit code. In a VM it
// does not return but reboots, which ends the machine.
func Main(ctx context.Context, w World) int {
	profile, native, err := parseArgs(w.Args)
	if err != nil {
		fmt.Fprintln(w.Stderr, err)
		return ExitUsage
	}
	p := newPID1(profile, native, w.System)
	end := p.run(ctx)
	p.shutdown(end)
	if end.failed() {
		return ExitFailed
	}
	return ExitOK
}

func parseArgs(args []string) (sandbox.Profile, NativeConfig, error) {
	var native NativeConfig
	if len(args) == 0 {
		return "", native, errors.New("cannot start: no profile given\nusage: init vm | init native-root|native-user [json]")
	}
	profile := sandbox.Profile(args[0])
	switch profile {
	case sandbox.ProfileVM, sandbox.ProfileNativeRoot, sandbox.ProfileNativeUser:
	default:
		return "", native, fmt.Errorf("cannot start: no profile %q\nprofiles: vm, native-root, native-user", args[0])
	}
	if len(args) > 1 {
		if err := json.Unmarshal([]byte(args[1]), &native); err != nil {
			return "", native, fmt.Errorf("cannot start: cannot read native configuration: %w", err)
		}
	}
	return profile, native, nil
}

// pid1 is the state of the program. Boot steps fill it in one after the other;
// after them only fields with their own locks change.
type pid1 struct {
	profile sandbox.Profile
	native  NativeConfig
	sys     *System
	log     *slog.Logger

	session *link.Session
	control *link.ControlConn
	config  link.Boot
	done    []link.Step // steps done before there was anyone to tell

	procs *processes
	logs  *logs

	records *records // nil on a native machine
	codes   *codes
	groups  *groups
	apps    *apps

	ending chan ending
	once   sync.Once
}

// ending says why PID 1 stops serving.
type ending struct {
	step string // the step that failed; empty for an orderly end
	err  error
}

func (e ending) failed() bool { return e.step != "" }

func newPID1(profile sandbox.Profile, native NativeConfig, sys *System) *pid1 {
	p := &pid1{profile: profile, native: native, sys: sys, ending: make(chan ending, 1)}
	p.logs = newLogs()
	p.log = slog.New(slog.NewTextHandler(p.logs.writer("", "init"), &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	p.procs = newProcesses(sys)
	p.codes = newCodes(sys)
	p.groups = newGroups(sys)
	p.apps = newApps(p)
	return p
}

// withoutTime drops the time of log records: the host knows when they came.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// run boots and serves, and returns why it stopped. A panic is a failure like
// any other: nothing may leave a machine hanging.
func (p *pid1) run(ctx context.Context) (end ending) {
	defer func() {
		if r := recover(); r != nil {
			end = panicked("run", r)
		}
	}()
	if end := p.boot(ctx); end.failed() {
		return end
	}
	return p.serve(ctx)
}

func panicked(where string, r any) ending {
	return ending{"panic", fmt.Errorf("panic in %s: %v\n%s", where, r, debug.Stack())}
}

// spawn runs f beside the main goroutine; a panic in it ends the sandbox.
func (p *pid1) spawn(name string, f func()) {
	go func() {
		defer func() {
			if r := recover(); r != nil {
				p.end(panicked(name, r))
			}
		}()
		f()
	}()
}

// end asks the main goroutine to stop serving; the first reason counts.
func (p *pid1) end(e ending) { p.once.Do(func() { p.ending <- e }) }

// boot runs the boot table.
func (p *pid1) boot(ctx context.Context) ending {
	for _, s := range bootSteps() {
		if !s.on(p.profile) {
			continue
		}
		start := p.sys.Now()
		err := s.run(p, ctx)
		p.report(s.name, p.sys.Now().Sub(start), err)
		if err != nil && s.fatal {
			return ending{s.name, err}
		}
	}
	return ending{}
}

// report tells the host about a step, as soon as there is a host.
func (p *pid1) report(name string, took time.Duration, err error) {
	step := link.Step{Name: name, Nanos: int64(took)}
	if err != nil {
		step.Error = err.Error()
	}
	p.done = append(p.done, step)
	if p.control == nil {
		return
	}
	for _, step := range p.done {
		p.send(link.Control{Step: &step})
	}
	p.done = nil
}

// send sends a control message. That the host is gone is noticed elsewhere.
func (p *pid1) send(m link.Control) {
	if err := p.control.Send(m); err != nil {
		p.log.Warn("cannot tell the host", "error", err)
	}
}

// Run is what the program does: PID 1 on the real system. Most of its work is
// to pass bytes from one goroutine to the next, and on one processor that
// takes half the time: nothing has to be woken. exit ends the process at once,
// for when an ordered end takes too long.
func Run(ctx context.Context, args []string, exit func(code int)) int {
	runtime.GOMAXPROCS(1)
	profile := ""
	if len(args) > 0 {
		profile = args[0]
	}
	return Main(ctx, World{Args: args, Stderr: os.Stderr, System: realSystem(profile, exit)})
}

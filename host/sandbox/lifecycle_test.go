package sandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/sandbox"
)

// envHost names a file with an order and makes this program a host that runs a sandbox until it is told to
// end: what the lifecycle tests kill.
const envHost = "BERTH_TEST_HOST"

// hostOrder is what the file holds.
type hostOrder struct {
	Machine, Image, Runtime, Workspace string
	App                                sandbox.App
}

func runHost(file string) int {
	var o hostOrder
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := host(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func host(ctx context.Context, o hostOrder) error {
	rt, err := runtimedir.Open(runtimedir.Search{Path: o.Runtime})
	if err != nil {
		return err
	}
	img, err := image.Open(image.Location{Dir: o.Image}, image.Options{})
	if err != nil {
		return err
	}
	var m machine.Machine = native.New(native.Options{Runtime: rt})
	if o.Machine == machine.QEMU {
		m = qemu.New(qemu.Options{Accel: qemu.TCG, Runtime: rt})
	}
	s, err := sandbox.Start(ctx, sandbox.Options{Machine: m, Image: img, Runtime: rt, Apps: []sandbox.App{o.App}, Shares: []sandbox.Share{{HostDir: o.Workspace}}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {
	case <-ctx.Done():
		return s.Close(context.Background())
	case <-s.Done():
		return s.Err()
	}
}

// victim is a host in a process of its own.
type victim struct {
	cmd     *exec.Cmd
	procs   []machinetest.Proc // everything below it
	runtime string
	cgroups []string
}

func (w world) startVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{runtime: filepath.Join(t.TempDir(), "run")}
	rt, err := runtimedir.Open(runtimedir.Search{Path: v.runtime})
	must(t, err)
	order, err := json.Marshal(hostOrder{Machine: w.machine(rt).Name(), Image: w.image.Dir, Runtime: v.runtime, Workspace: t.TempDir(), App: w.probe(t, "", nil)})
	must(t, err)
	file := filepath.Join(t.TempDir(), "order")
	must(t, os.WriteFile(file, order, 0o600))
	v.cmd = exec.Command("/proc/self/exe")
	v.cmd.Env = append(os.Environ(), envHost+"="+file)
	v.cmd.Stderr = os.Stderr
	out, err := v.cmd.StdoutPipe()
	must(t, err)
	must(t, v.cmd.Start())
	t.Cleanup(func() { v.cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the host did not start its sandbox: %q, %v", line, err)
	}
	v.procs = machinetest.Below(t, v.cmd.Process.Pid)
	if len(v.procs) < 2 {
		t.Fatalf("a sandbox has only %v", v.procs)
	}
	leftovers, _ := filepath.Glob(filepath.Join(v.runtime, "sandboxes", "*", "leftovers.json"))
	for _, name := range leftovers {
		raw, err := os.ReadFile(name)
		must(t, err)
		var l runtimedir.Leftovers
		must(t, json.Unmarshal(raw, &l))
		v.cgroups = append(v.cgroups, l.Cgroups...)
	}
	return v
}

// gone checks that nothing is left of a victim.
func (v *victim) gone(t *testing.T) {
	t.Helper()
	machinetest.AwaitGone(t, v.procs)
	for _, dir := range v.cgroups {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("cgroup %s is still there (%v)", dir, err)
		}
	}
	left, err := os.ReadDir(filepath.Join(v.runtime, "sandboxes"))
	if err != nil || len(left) > 0 {
		t.Errorf("runtime folder still holds %v (%v)", left, err)
	}
}

func TestHostIsKilled(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
			t.Run(sig.String(), func(t *testing.T) {
				v := w.startVictim(t)
				must(t, v.cmd.Process.Signal(sig))
				err := v.cmd.Wait()
				if clean := sig != syscall.SIGKILL; clean != (err == nil) {
					t.Errorf("the host ended with %v", err)
				}
				v.gone(t)
			})
		}
	})
}

// When host and keeper die together nobody is left to clean up; the kernel ends
// the processes, and the next start removes the rest.
func TestHostAndKeeperAreKilled(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		v := w.startVictim(t)
		keeper := machinetest.Named(t, v.procs, "berth-keeper")
		must(t, v.cmd.Process.Signal(syscall.SIGSTOP)) // it must not notice
		keeper.Kill(t, unix.SIGKILL)
		must(t, v.cmd.Process.Kill())
		_ = v.cmd.Wait()
		machinetest.AwaitGone(t, v.procs)
		rt, err := runtimedir.Open(runtimedir.Search{Path: v.runtime})
		must(t, err)
		ids, err := rt.Collect()
		if err != nil || len(ids) != 1 {
			t.Errorf("collected %v, %v", ids, err)
		}
		v.gone(t)
	})
}

// A call that is under way when something dies fails with the reason.
func TestPendingCallLearnsWhatDied(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		first := map[string]string{machine.Native: "/sbin/init", machine.QEMU: "/usr/bin/qemu-system"}
		cases := []struct{ name, victim, want string }{
			{"keeper", "berth-keeper", "its keeper died: signal: killed"},
			{"first process", "", "signal: killed"},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				r := w.mustStart(t, nil)
				procs := machinetest.Below(t, os.Getpid())
				prefix := c.victim
				if prefix == "" {
					prefix = first[r.machine]
				}
				pending := r.pending(t)
				machinetest.Named(t, procs, prefix).Kill(t, unix.SIGKILL)
				contains(t, <-pending, sandbox.ErrEnded.Error(), c.want)
				machinetest.AwaitGone(t, procs)
				<-r.Done() // its processes are gone a moment before
				contains(t, r.Err(), c.want)
				_, err := r.call("whoami", obj{})
				contains(t, err, c.want)
			})
		}
	})
}

// pending starts a call that never returns and waits until it is under way.
func (r *running) pending(t *testing.T) <-chan error {
	t.Helper()
	under, result := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	go func() {
		_, err := r.Call(ctx, sandbox.CallRequest{App: "probe", Export: "wait", Input: []byte("{}"), OnMessage: progress(under)})
		result <- err
	}()
	select {
	case <-under:
	case err := <-result:
		t.Fatalf("the call ended at once: %v", err)
	}
	return result
}

func TestGuestPanic(t *testing.T) {
	w := newWorld(t, nil)
	monitor, theirs, err := keeperSocketPair()
	must(t, err)
	defer monitor.Close()
	w.machine = func(rt *runtimedir.Root) machine.Machine {
		return qemu.New(qemu.Options{Accel: qemu.TCG, Runtime: rt, Monitor: theirs})
	}
	r := w.mustStart(t, nil)
	theirs.Close()
	procs := machinetest.Below(t, os.Getpid())
	pending := r.pending(t)
	if _, err := monitor.Write([]byte("nmi\n")); err != nil {
		t.Fatal(err)
	}
	machinetest.AwaitGone(t, procs)
	contains(t, <-pending, "guest kernel panic: ", "NMI")
	if !strings.Contains(fmt.Sprint(r.Err()), "guest kernel panic") {
		t.Errorf("the sandbox ended with %v", r.Err())
	}
}

// A guest that does not even notice that it should end is ended by force.
func TestCloseOfAFrozenGuest(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		procs := machinetest.Below(t, os.Getpid())
		prefix := "/sbin/init"
		if r.machine == machine.QEMU {
			prefix = "/usr/bin/qemu-system"
		}
		machinetest.Named(t, procs, prefix).Kill(t, unix.SIGSTOP)
		must(t, r.Close(context.Background()))
		machinetest.AwaitGone(t, procs)
	})
}

// Starting and ending sandboxes costs the host no descriptors.
func TestNoDescriptorIsLeaked(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		rounds := 6
		if w.machine(nil).Name() == machine.QEMU {
			rounds = 2
		}
		var first int
		for n := range rounds {
			t.Run("round", func(t *testing.T) {
				_, err := w.mustStart(t, nil).call("whoami", obj{})
				must(t, err)
			})
			open, err := os.ReadDir("/proc/self/fd")
			must(t, err)
			switch {
			case n == 0:
				first = len(open)
			case len(open) > first:
				t.Errorf("%d descriptors after round %d, %d after the first", len(open), n+1, first)
			}
		}
	})
}

// Every thread of QEMU is under a system call filter and can gain nothing by
// executing something; the program that started it, the control, is not.
func TestVMMIsFiltered(t *testing.T) {
	w := emulated(t)
	r := w.mustStart(t, nil)
	must(t, r.callApp("probe", "whoami", obj{}))
	var threads []string
	for _, p := range machinetest.Below(t, os.Getpid()) {
		if strings.Contains(p.Args, "qemu-system") {
			list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.PID))
			must(t, err)
			threads = append(threads, list...)
		}
	}
	filtered := func(file string) bool {
		raw, err := os.ReadFile(file)
		must(t, err)
		return strings.Contains(string(raw), "\nSeccomp:\t2\n") && strings.Contains(string(raw), "\nNoNewPrivs:\t1\n")
	}
	if filtered("/proc/self/status") {
		t.Fatal("control: this test is under a filter itself")
	}
	for _, file := range threads {
		if !filtered(file) {
			t.Errorf("%s: no filter", file)
		}
	}
	if len(threads) == 0 {
		t.Error("QEMU has no thread")
	}
}

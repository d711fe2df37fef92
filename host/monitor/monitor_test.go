package monitor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/host/monitor"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testimage"
)

// envParent makes this program a parent that starts a monitor and waits.
const (
	envParent = "BERTH_TEST_PARENT"
	envImage  = "BERTH_TEST_IMAGE"
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == monitor.Arg {
		os.Exit(monitor.Main(hooks()))
	}
	if spec := os.Getenv(envParent); spec != "" {
		os.Exit(parent(spec))
	}
	os.Exit(m.Run())
}

// parent starts a sandbox, says so and waits to be killed.
func parent(spec string) int {
	var o monitor.Options
	err := json.Unmarshal([]byte(spec), &o.Start)
	var m *monitor.Monitor
	if err == nil {
		m, err = monitor.Start(context.Background(), o)
	}
	if err == nil && o.Start.Name != "" {
		err = m.Detach()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(m.PID())
	<-m.Done()
	return 0
}

// world is what the tests share.
type world struct {
	image   *image.Image
	runtime *runtimedir.Root
}

// both runs f with the native machine, as root and as an ordinary user.
func both(t *testing.T, f func(*testing.T, world)) {
	if err := native.Check(); err != nil {
		testenv.Skip(t, err.Error())
	}
	var keep []string
	if !machinetest.Again() {
		dir := machinetest.Folder(t)
		must(t, os.CopyFS(dir, os.DirFS(testimage.Dir(t, index.KindImage))))
		keep = []string{envImage + "=" + dir}
		t.Setenv(envImage, dir)
	}
	machinetest.Both(t, keep, func(t *testing.T) {
		img, err := image.Open(image.Location{Dir: os.Getenv(envImage), Source: "test"}, image.Options{})
		must(t, err)
		rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
		must(t, err)
		f(t, world{image: img, runtime: rt})
	})
}

// options are those of a sandbox without apps.
func (w world) options(t *testing.T, share string) monitor.Options {
	t.Helper()
	return monitor.Options{Start: monitor.Spec{
		Machine: machine.Native, ImageDir: w.image.Dir, Image: w.image.Digest, Runtime: w.runtime.Path(),
		Shares: []sandbox.Share{{HostDir: share}},
	}}
}

func (w world) close(t *testing.T, m *monitor.Monitor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, m.Close(ctx))
	w.empty(t)
}

// empty checks that nothing of any sandbox is left.
func (w world) empty(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(w.runtime.Sandboxes())
	must(t, err)
	for _, e := range left {
		t.Errorf("%s was left", e.Name())
	}
}

// startParent starts a sandbox from another process and returns all of it.
func (w world) startParent(t *testing.T, o monitor.Options) (cmd *exec.Cmd, mon int, procs []machinetest.Proc) {
	t.Helper()
	spec, err := json.Marshal(o.Start)
	must(t, err)
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envParent+"="+string(spec))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	mon, err = strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	procs = machinetest.Below(t, cmd.Process.Pid)
	if len(procs) < 3 {
		t.Fatalf("control: a sandbox is a monitor, a keeper and a first process at least; there are %v", procs)
	}
	return cmd, mon, procs
}

// TestParentDies: whatever kills the parent, the sandbox goes.
func TestParentDies(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		cmd, _, procs := w.startParent(t, w.options(t, t.TempDir()))
		must(t, cmd.Process.Kill())
		machinetest.AwaitGone(t, procs)
		w.empty(t)
	})
}

// TestDetached: a sandbox that was detached outlives its parent, and ends when
// it is asked to.
func TestDetached(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		o := w.options(t, t.TempDir())
		o.Start.Name = "box"
		cmd, mon, procs := w.startParent(t, o)
		must(t, cmd.Process.Kill())
		cmd.Wait()
		clients, found, _, err := control.Find(t.Context(), w.runtime.Sandboxes())
		must(t, err)
		if len(found) != 1 || found[0].Name != "box" || found[0].PID != mon {
			t.Fatalf("found %+v, want box in process %d", found, mon)
		}
		must(t, clients[0].Stop(t.Context()))
		machinetest.AwaitGone(t, procs)
		w.empty(t)
	})
}

// TestStopIsForDetached: the socket does not end the sandbox of a command that
// is still there.
func TestStopIsForDetached(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		m, err := monitor.Start(t.Context(), w.options(t, t.TempDir()))
		must(t, err)
		defer w.close(t, m)
		clients, _, _, err := control.Find(t.Context(), w.runtime.Sandboxes())
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := clients[0].Stop(ctx); err == nil || !strings.Contains(err.Error(), "the command that started it") {
			t.Errorf("Stop: %v", err)
		}
		st, err := os.Stat(filepath.Join(w.runtime.Sandboxes(), m.State().ID, control.Socket))
		must(t, err)
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", control.Socket, st.Mode().Perm())
		}
	})
}

// TestMonitorDies: the parent is told, and its keeper ends the sandbox.
func TestMonitorDies(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		m, err := monitor.Start(t.Context(), w.options(t, t.TempDir()))
		must(t, err)
		procs := machinetest.Below(t, m.PID())
		must(t, syscall.Kill(m.PID(), syscall.SIGKILL))
		<-m.Done()
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), "the monitor, which holds the sandbox, died: signal: killed") {
			t.Errorf("Err: %v", err)
		}
		machinetest.AwaitGone(t, procs)
		w.empty(t)
	})
}

// TestStoppedKeeper: one that does not answer is ended by force, and said to be.
func TestStoppedKeeper(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		m, err := monitor.Start(t.Context(), w.options(t, t.TempDir()))
		must(t, err)
		procs := machinetest.Below(t, m.PID())
		machinetest.Named(t, procs, "berth-keeper").Kill(t, unix.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := m.Close(ctx); err == nil || !strings.Contains(err.Error(), "its keeper did not answer") {
			t.Errorf("Close: %v", err)
		}
		machinetest.AwaitGone(t, procs)
		w.empty(t)
	})
}

// TestStartFails: an error of the start comes with its hint, and once.
func TestStartFails(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		o := w.options(t, filepath.Join(t.TempDir(), "missing"))
		var events []monitor.Event
		o.OnEvent = func(e monitor.Event) { events = append(events, e) }
		_, err := monitor.Start(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "it does not exist") {
			t.Errorf("Start: %v", err)
		}
		o = w.options(t, t.TempDir())
		o.Start.Image = strings.Repeat("0", 64)
		if _, err := monitor.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "want sha256 0000") {
			t.Errorf("Start with another image: %v", err)
		}
		if len(events) > 0 {
			t.Errorf("events %+v", events)
		}
		w.empty(t)
	})
}

// TestEnvironment: of the user's variables the monitor gets one.
func TestEnvironment(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		t.Setenv("BERTH_TEST_KEY", "a key of the user's")
		m, err := monitor.Start(t.Context(), w.options(t, t.TempDir()))
		must(t, err)
		defer w.close(t, m)
		for _, p := range append(machinetest.Below(t, m.PID()), machinetest.Proc{PID: m.PID()}) {
			raw, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ")
			if err != nil {
				continue // of the sandbox's own user
			}
			if slices.ContainsFunc(strings.Split(string(raw), "\x00"), func(v string) bool { return strings.HasPrefix(v, "BERTH_TEST_KEY=") }) {
				t.Errorf("process %d (%s) has the user's variables", p.PID, p.Args)
			}
		}
		raw, err := os.ReadFile("/proc/self/environ")
		must(t, err)
		if len(raw) == 0 {
			t.Error("control: this process has no environment to be read")
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package monitor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/monitor"
	"github.com/berthos/berth/host/sandbox"
)

// trial is what a monitor of the tests tries in itself, just before and just
// after it is confined. It is in no other program.
type trial struct {
	Inside, Outside string // folders: shared, and not
	TCP             string // address of a listener
	PID             int    // of another process of this user
	Own, Foreign    string // files in Inside: with the owner's rights, and one that only root's power reads
	Without         []string
	Results         string // file for two lists of outcomes
}

// outcome is "done", or the error.
type outcome map[string]string

const envTrial = "BERTH_TEST_TRIAL"

// attempts are things that a monitor has no business to do, but for the first.
var attempts = map[string]func(trial) error{
	"write in a shared folder": func(t trial) error { return os.WriteFile(filepath.Join(t.Inside, "new"), []byte("x"), 0o600) },
	"read outside":             func(t trial) error { _, err := os.ReadFile(filepath.Join(t.Outside, "key")); return err },
	"write outside":            func(t trial) error { return os.WriteFile(filepath.Join(t.Outside, "new"), []byte("x"), 0o600) },
	"remove outside":           func(t trial) error { return errors.Join(os.Remove(filepath.Join(t.Outside, "old"))) },
	"execute a program":        func(trial) error { return exec.Command("/proc/self/exe", "-test.list=^$").Run() },
	"open a TCP connection": func(t trial) error {
		c, err := net.Dial("tcp", t.TCP)
		if err == nil {
			c.Close()
		}
		return err
	},
	"make a UDP socket": func(trial) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"signal another process": func(t trial) error { return unix.Kill(t.PID, 0) },
	"map executable memory": func(trial) error {
		b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil {
			err = unix.Munmap(b)
		}
		return err
	},
	"read another's file": func(t trial) error { _, err := os.ReadFile(t.Foreign); return err },
}

func runTrial(t trial) outcome {
	out := outcome{}
	for name, try := range attempts {
		out[name] = "done"
		if err := try(t); err != nil {
			out[name] = err.Error()
		}
	}
	return out
}

// hooks makes this program's monitors try what envTrial says.
func hooks() monitor.Hooks {
	raw := os.Getenv(envTrial)
	if raw == "" {
		return monitor.Hooks{}
	}
	var t trial
	if err := json.Unmarshal([]byte(raw), &t); err != nil {
		panic(err)
	}
	return monitor.Hooks{Without: t.Without, Around: func(_ sandbox.Reach, confine func() error) error {
		f, err := os.Create(t.Results) // now: later it could not
		if err != nil {
			return err
		}
		defer f.Close()
		before := runTrial(t)
		os.WriteFile(filepath.Join(t.Outside, "old"), nil, 0o600)
		if err := confine(); err != nil {
			return err
		}
		return json.NewEncoder(f).Encode([]outcome{before, runTrial(t)})
	}}
}

// claims say which layers stand in the way of each attempt; with these left out
// it must succeed again.
var claims = map[string][]string{
	"read outside":           {monitor.LayerLandlock},
	"write outside":          {monitor.LayerLandlock},
	"remove outside":         {monitor.LayerLandlock},
	"execute a program":      {monitor.LayerLandlock, monitor.LayerSeccomp},
	"open a TCP connection":  {monitor.LayerLandlock, monitor.LayerSeccomp},
	"make a UDP socket":      {monitor.LayerSeccomp},
	"signal another process": {monitor.LayerLandlock, monitor.LayerSeccomp},
	"map executable memory":  {monitor.LayerSeccomp},
	"read another's file":    {monitor.LayerCapabilities},
}

// TestConfinement: inside the real monitor of a running sandbox, what it could do
// before it was confined fails, and succeeds again without the layers that are
// said to prevent it.
func TestConfinement(t *testing.T) {
	both(t, func(t *testing.T, w world) {
		full := w.try(t)
		for name, what := range full[0] {
			if what != "done" && !(name == "read another's file" && os.Geteuid() != 0) {
				t.Fatalf("control: %s: %s", name, what)
			}
		}
		if what := full[1]["write in a shared folder"]; what != "done" {
			t.Errorf("confined, the monitor cannot write in a shared folder: %s", what)
		}
		for name := range claims {
			if what := full[1][name]; !strings.HasSuffix(what, "permission denied") && !strings.HasSuffix(what, "operation not permitted") {
				t.Errorf("confined, %s: %q; want it refused", name, what)
			}
		}
		for _, without := range [][]string{{monitor.LayerCapabilities}, {monitor.LayerLandlock}, {monitor.LayerSeccomp}, {monitor.LayerLandlock, monitor.LayerSeccomp}} {
			after := w.try(t, without...)[1]
			for name, layers := range claims {
				if strings.Join(layers, "+") == strings.Join(without, "+") && after[name] != "done" && full[0][name] == "done" {
					t.Errorf("without %s, %s: %s; want it done", strings.Join(without, " and "), name, after[name])
				}
			}
		}
	})
}

// try starts a sandbox whose monitor makes the attempts, and ends it.
func (w world) try(t *testing.T, without ...string) []outcome {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	tr := trial{Inside: machinetest.Folder(t), Outside: machinetest.Folder(t), TCP: listener.Addr().String(), PID: os.Getpid(), Without: without}
	tr.Results, tr.Foreign = filepath.Join(t.TempDir(), "results"), filepath.Join(tr.Inside, "foreign")
	must(t, os.WriteFile(filepath.Join(tr.Outside, "key"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(tr.Outside, "old"), nil, 0o600))
	must(t, os.WriteFile(tr.Foreign, []byte("x"), 0o600))
	if os.Geteuid() == 0 {
		must(t, os.Chown(tr.Foreign, 12345, 12345))
	} else {
		must(t, os.Chmod(tr.Foreign, 0))
	}
	raw, err := json.Marshal(tr)
	must(t, err)
	m, err := monitor.Start(t.Context(), w.options(t, tr.Inside).WithEnv(envTrial+"="+string(raw)))
	must(t, err)
	if len(without) == 0 {
		confinedThreads(t, m.PID())
	}
	w.close(t, m)
	var out []outcome
	raw, err = os.ReadFile(tr.Results)
	must(t, err)
	must(t, json.Unmarshal(raw, &out))
	if len(out) != 2 {
		t.Fatalf("results %s", raw)
	}
	return out
}

// confinedThreads asks the kernel about every thread of a monitor.
func confinedThreads(t *testing.T, pid int) {
	t.Helper()
	if got := field(status(t, os.Getpid()), "NoNewPrivs"); got != "0" {
		t.Logf("no control: this test itself has NoNewPrivs %s", got)
	}
	statuses, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	must(t, err)
	if len(statuses) < 2 {
		t.Fatalf("monitor %d has the threads %v", pid, statuses)
	}
	for _, name := range statuses {
		raw, err := os.ReadFile(name)
		must(t, err)
		for key, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": strings.Repeat("0", 16), "CapPrm": strings.Repeat("0", 16)} {
			if got := field(string(raw), key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
	if kids := machinetest.Below(t, pid); len(kids) == 0 {
		t.Error("control: the monitor of a running sandbox has no keeper")
	}
}

// status is what the kernel says of a process.
func status(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	must(t, err)
	return string(raw)
}

func field(status, key string) string {
	for line := range strings.Lines(status) {
		if k, v, _ := strings.Cut(line, ":"); k == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
	"github.com/berthos/berth/tools/imagebuild"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/worklayer"
)

// Environment of the tests of ordinary work.
const (
	envWork     = "BERTH_TEST_WORK"      // an app image, for tests that run again as an ordinary user
	envWorkRuns = "BERTH_TEST_WORK_RUNS" // how often TestWorkManyTimes works
)

// What is refused by design, machine by machine, is listed in the README of
// tools/workapp; everything else that is refused is a fault.

// TestWork does ordinary work with real programs inside a sandbox: none of it
// may be refused, and all of it must come out right.
func TestWork(t *testing.T) {
	t.Run("native", func(t *testing.T) {
		if err := native.Check(); err != nil {
			testenv.Skip(t, err.Error())
		}
		machinetest.Both(t, workShared(t), func(t *testing.T) {
			w := newWorld(t, nativeMachine)
			r := w.startWork(t, workImage(t, worklayer.Node()), 1024)
			r.work(t, workIn{Dir: "/workspace", Scale: 100, Repo: "/workspace/existing", Need: []string{"git-existing", "git", "python", "node", "npm"}})
			r.work(t, workIn{Dir: "/tmp", Scale: 5, Skip: []string{"npm"}})
			r.work(t, workIn{Dir: "/scratch", Scale: 5, Skip: []string{"npm"}})
			r.work(t, workIn{Dir: "/workspace", Names: []string{"limits"}})
		})
	})
	if machinetest.Again() {
		return
	}
	t.Run("qemu", func(t *testing.T) {
		w := emulated(t)
		r := w.startWork(t, workImage(t, worklayer.Posix()), 512)
		r.work(t, workIn{Dir: "/scratch", Scale: 0, Skip: []string{"git-large"}, Need: []string{"git", "python"}})
		r.work(t, workIn{Dir: "/workspace", Scale: 0, Repo: "/workspace/existing", Skip: []string{"git", "git-large", "python", "sqlite", "shell", "c-static", "c-musl", "c-dynamic"}, Need: []string{"git-existing"}})
		r.noDenials(t)
		r.work(t, workIn{Dir: "/workspace", Names: []string{"limits"}})
	})
}

// workRuns is how often a whole round of work is done in `make test`.
const workRuns = 5

// TestWorkManyTimes does a small amount of everything, again and again, in new
// sandboxes now and then: what is refused once in a thousand times is refused.
func TestWorkManyTimes(t *testing.T) {
	if err := native.Check(); err != nil {
		testenv.Skip(t, err.Error())
	}
	runs := workRuns
	if s := os.Getenv(envWorkRuns); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		runs = n
	}
	const eachSandbox = 100
	w := newWorld(t, nativeMachine)
	image := workImage(t, worklayer.Node())
	begin, done, pieces := time.Now(), 0, 0
	for done < runs && !t.Failed() {
		t.Run(fmt.Sprint("from", done), func(t *testing.T) {
			r := w.startWork(t, image, 1024)
			for range min(eachSandbox, runs-done) {
				in := workIn{Dir: []string{"/workspace", "/scratch", "/tmp"}[done%3], Repo: "/workspace/existing", Skip: []string{"npm"}, Need: []string{"git-existing", "git"}}
				if done%5 > 0 { // what starts slowly, less often
					in.Skip = append(in.Skip, "node", "python")
				}
				pieces += r.work(t, in)
				done++
			}
		})
	}
	t.Logf("%d runs of %d pieces of work in %s", done, pieces, time.Since(begin).Round(time.Second))
}

type workIn struct {
	Dir   string   `json:"dir"`
	Names []string `json:"names,omitempty"`
	Skip  []string `json:"skip,omitempty"`
	Scale int      `json:"scale"`
	Repo  string   `json:"repo,omitempty"`
	Unix  bool     `json:"unix"`
	Need  []string `json:"-"` // must be among what was done
}

type workOut struct {
	Results []struct {
		Name   string `json:"name"`
		Millis int64  `json:"millis"`
		Error  string `json:"error"`
	} `json:"results"`
}

// workImage makes the app image, or takes that of the first run.
func workImage(t testing.TB, o worklayer.Options) []byte {
	t.Helper()
	file := os.Getenv(envWork)
	if file == "" {
		file = filepath.Join(t.TempDir(), "work.tar")
		buildWork(t, o, file)
	}
	raw, err := os.ReadFile(file)
	must(t, err)
	return raw
}

func buildWork(t testing.TB, o worklayer.Options, file string) {
	t.Helper()
	module, err := imagebuild.Module(".")
	must(t, err)
	_, layer, err := worklayer.App(t.Context(), o, module, file)
	must(t, err)
	for _, p := range layer.Packages {
		t.Logf("%s %s sha256 %s", p.Name, p.Version, p.SHA256)
	}
}

// workShared is shared with the work's image.
func workShared(t *testing.T) []string {
	t.Helper()
	if machinetest.Again() {
		return nil
	}
	file := filepath.Join(machinetest.Folder(t), "work.tar")
	buildWork(t, worklayer.Node(), file)
	t.Setenv(envWork, file)
	return append(shared(t), envWork+"="+file)
}

// working is a sandbox in which work is done.
type working struct {
	*running
	begin time.Time
}

func (w world) startWork(t testing.TB, image []byte, memory int) working {
	t.Helper()
	p := policy.Policy{
		Schema: policy.Schema, App: "work", Version: "1.0.0", Code: "sha256:" + policy.Digest(image), Argv: []string{"/app/workapp"},
		Rights: policy.Rights{
			Class: policy.ClassNetwork, Bind: []uint16{7001, 7002, 7003}, Connect: []uint16{7001, 7002, 7003},
			Paths: []policy.Path{{Path: "/tmp", Access: policy.Write}, {Path: "/workspace", Access: policy.Write}},
		},
		Limits:  policy.Limits{CPUMilli: 2000, MemoryMB: memory, Pids: 512},
		Exports: []string{"list", "work"},
	}
	raw, err := p.Encode()
	must(t, err)
	r := working{begin: time.Now()}
	r.running = w.mustStart(t, func(o *sandbox.Options) {
		o.Apps = []sandbox.App{{Policy: raw, Image: image}}
		existing(t, filepath.Join(o.Shares[0].HostDir, "existing"))
	})
	return r
}

// existing makes a repository as a user has it.
func existing(t testing.TB, dir string) {
	t.Helper()
	for i := range 30 {
		name := filepath.Join(dir, fmt.Sprint("d", i%5), fmt.Sprint("f", i))
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(strings.Repeat("a line\n", i)), 0o644))
	}
	for _, args := range []string{"init -q -b main", "add .", "-c user.name=User -c user.email=user@example.invalid commit -q -m first"} {
		cmd := exec.Command("git", append([]string{"-C", dir}, strings.Fields(args)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
}

// work does pieces of work and returns how many.
func (r working) work(t testing.TB, in workIn) int {
	t.Helper()
	in.Unix = r.Apps()[0].Enforced.ABI >= 9
	raw, err := json.Marshal(in)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	at := ""
	answer, err := r.Call(ctx, sandbox.CallRequest{App: "work", Export: "work", Input: raw, OnMessage: func(m protocol.Message) {
		if m.Type == protocol.TypeProgress {
			at = m.Text
		}
	}})
	if err != nil {
		t.Fatalf("while doing %q in %s: %v", at, in.Dir, err)
	}
	var out workOut
	must(t, json.Unmarshal(answer, &out))
	var times, done []string
	for _, result := range out.Results {
		done = append(done, result.Name)
		times = append(times, fmt.Sprintf("%s %d", result.Name, result.Millis))
		if result.Error != "" {
			t.Errorf("%s in %s: %s", result.Name, in.Dir, result.Error)
		}
	}
	for _, name := range in.Need {
		if !slices.Contains(done, name) {
			t.Errorf("%s in %s: not done", name, in.Dir)
		}
	}
	if len(out.Results) < 20 && len(in.Names) != len(out.Results) {
		t.Errorf("only %d pieces of work were done", len(out.Results))
	}
	if testing.Verbose() && in.Scale > 1 || r.machine != machine.Native {
		t.Logf("milliseconds in %s: %s", in.Dir, strings.Join(times, ", "))
	}
	return len(out.Results)
}

// benign are the records that allowed work leaves: what programs ask for
// although they do without it. Go does so with every listener and name.
var benign = []struct{ record, reason string }{
	{"[net.bind_tcp] [::1]:0 seccomp=false syscall=49 by workapp", "Go asks whether there is IPv6"},
	{"[net.bind_tcp] [::ffff:127.0.0.1]:0 seccomp=false syscall=49 by workapp", "Go asks whether IPv6 sockets carry IPv4"},
	{"[net.connect_send_udp] 127.0.0.1:53 seccomp=false syscall=42 by workapp", "Go asks for the source address, to sort the addresses of a name"},
	{"[net.connect_send_udp] [::1]:53 seccomp=false syscall=42 by workapp", "the same"},
	{"[]  seccomp=true syscall=41 by workapp", "Go asks for MPTCP before TCP"},
}

// noDenials wants no record of the kernel's but the benign ones.
func (r working) noDenials(t testing.TB) {
	t.Helper()
	d, err := r.Denials(t.Context(), "work", r.begin)
	must(t, err)
	if !d.Kept || !d.Complete {
		t.Errorf("records: kept %v, complete %v", d.Kept, d.Complete)
	}
	seen := map[string]int{}
	for _, rec := range d.Records {
		seen[fmt.Sprintf("%v %s%s seccomp=%v syscall=%d by %s", rec.Blockers, rec.Path, rec.Object, rec.Seccomp, rec.Syscall, rec.Comm)]++
	}
	for what, n := range seen {
		if !slices.ContainsFunc(benign, func(b struct{ record, reason string }) bool { return b.record == what }) {
			t.Errorf("allowed work left %d records: %s", n, what)
		}
	}
}

func nativeMachine(rt *runtimedir.Root) machine.Machine {
	return native.New(native.Options{Runtime: rt})
}

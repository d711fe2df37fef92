package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/keeper"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/sdk/protocol"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testimage"
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	if order := os.Getenv(envHost); order != "" {
		os.Exit(runHost(order))
	}
	code := m.Run()
	os.RemoveAll(appDir)
	os.Exit(code)
}

// appDir is where the test app was built, if it was.
var appDir string

// Environment of tests that run again as an ordinary user.
const (
	envImage = "BERTH_TEST_IMAGE"
	envApp   = "BERTH_TEST_APP"
)

// world is what the tests of one machine share.
type world struct {
	machine func(rt *runtimedir.Root) machine.Machine
	image   *image.Image
	app     []byte // the test app's program
}

// machines runs f on every machine that this host has.
func machines(t *testing.T, f func(t *testing.T, w world)) {
	keep := shared(t)
	t.Run("native", func(t *testing.T) {
		if err := native.Check(); err != nil {
			testenv.Skip(t, err.Error())
		}
		machinetest.Both(t, keep, func(t *testing.T) {
			f(t, newWorld(t, func(rt *runtimedir.Root) machine.Machine { return native.New(native.Options{Runtime: rt}) }))
		})
	})
	if !machinetest.Again() {
		t.Run("qemu", func(t *testing.T) { f(t, emulated(t)) })
	}
}

// shared copies what a test needs to where an ordinary user reaches it, wherever
// the checkout is, and returns its environment.
func shared(t *testing.T) []string {
	t.Helper()
	if machinetest.Again() {
		return nil
	}
	dir := machinetest.Folder(t)
	must(t, os.CopyFS(dir, os.DirFS(imageDir(t))))
	raw, err := os.ReadFile(manifestFile(t))
	must(t, err)
	manifest := filepath.Join(dir, "berth.yml")
	must(t, os.WriteFile(manifest, raw, 0o644))
	return []string{envImage + "=" + dir, envApp + "=" + buildApp(t), envManifest + "=" + manifest}
}

// emulated is a world whose machine is a VM with an emulated processor.
func emulated(t *testing.T) world {
	t.Helper()
	if _, err := qemu.Find(image.HostArch()); err != nil {
		testenv.Skip(t, err.Error())
	}
	return newWorld(t, func(rt *runtimedir.Root) machine.Machine {
		return qemu.New(qemu.Options{Accel: qemu.TCG, Runtime: rt})
	})
}

func newWorld(t *testing.T, m func(rt *runtimedir.Root) machine.Machine) world {
	t.Helper()
	img, err := image.Open(image.Location{Dir: imageDir(t), Source: "test"}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(buildApp(t))
	if err != nil {
		t.Fatal(err)
	}
	return world{machine: m, image: img, app: raw}
}

func imageDir(t testing.TB) string {
	if dir := os.Getenv(envImage); dir != "" {
		return dir
	}
	return testimage.Dir(t, index.KindImage)
}

var builtApp = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "berth-test-app-")
	if err != nil {
		return "", err
	}
	appDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "probe")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "./testdata/app")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

func buildApp(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv(envApp); bin != "" {
		return bin
	}
	bin, err := builtApp()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// probe is the test app with a policy: write below /workspace.
func (w world) probe(t testing.TB, mode string, edit func(*policy.Policy)) sandbox.App {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "probe"), w.app, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "mode"), []byte(mode), 0o644))
	var img bytes.Buffer
	code, _, err := appimage.Build(&img, dir)
	must(t, err)
	p := policy.Policy{
		Schema: policy.Schema, App: "probe", Version: "1.0.0", Code: code, Argv: []string{"/app/probe"},
		Rights:  policy.Rights{Class: "base", Paths: []policy.Path{{Path: "/workspace", Access: policy.Write}}},
		Limits:  policy.Limits{CPUMilli: 1000, MemoryMB: 128, Pids: 64},
		Exports: []string{"bomb", "deny", "die", "echo", "print", "priority", "read", "setuid", "spin", "tree", "wait", "whoami", "write"},
	}
	if edit != nil {
		edit(&p)
	}
	raw, err := p.Encode()
	must(t, err)
	return sandbox.App{Policy: raw, Image: img.Bytes()}
}

// running is a started sandbox and what it has told.
type running struct {
	*sandbox.Sandbox
	t  testing.TB
	ws string // the workspace

	machine string // its name

	mu     sync.Mutex // guards what follows
	events []sandbox.Event
	more   chan struct{} // closed and renewed with the next event
}

// start boots a sandbox with the test app and a workspace.
func (w world) start(t testing.TB, edit func(*sandbox.Options)) (*running, error) {
	t.Helper()
	r := &running{t: t, ws: t.TempDir(), more: make(chan struct{})}
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	must(t, err)
	o := sandbox.Options{
		Machine: w.machine(rt), Image: w.image, Runtime: rt,
		Apps:   []sandbox.App{w.probe(t, "", nil)},
		Shares: []sandbox.Share{{HostDir: r.ws}},
		OnEvent: func(e sandbox.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
			close(r.more)
			r.more = make(chan struct{})
		},
	}
	if edit != nil {
		edit(&o)
	}
	r.machine = o.Machine.Name()
	r.Sandbox, err = sandbox.Start(t.Context(), o)
	if err != nil {
		if left, _ := os.ReadDir(filepath.Join(rt.Path(), "sandboxes")); len(left) > 0 {
			t.Errorf("a failed start left %v", left)
		}
		return r, err
	}
	t.Cleanup(func() {
		must(t, r.Close(context.Background()))
		if left, _ := os.ReadDir(filepath.Join(rt.Path(), "sandboxes")); len(left) > 0 {
			t.Errorf("the sandbox left %v", left)
		}
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range r.events {
				t.Log(e)
			}
		}
	})
	return r, nil
}

func (w world) mustStart(t testing.TB, edit func(*sandbox.Options)) *running {
	t.Helper()
	r, err := w.start(t, edit)
	must(t, err)
	return r
}

// call makes a call and returns the text of its result.
func (r *running) call(export string, input any) (string, error) {
	r.t.Helper()
	raw, err := json.Marshal(input)
	must(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	out, err := r.Call(ctx, sandbox.CallRequest{App: "probe", Export: export, Input: raw})
	if err != nil {
		return "", err
	}
	var text struct {
		Text string `json:"text"`
	}
	must(r.t, json.Unmarshal(out, &text))
	return text.Text, nil
}

type obj map[string]any

// progress closes under at the first progress message of a call.
func progress(under chan struct{}) func(protocol.Message) {
	var once sync.Once
	return func(m protocol.Message) {
		if m.Type == protocol.TypeProgress {
			once.Do(func() { close(under) })
		}
	}
}

var keeperSocketPair = keeper.SocketPair

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// contains checks an error's text.
func contains(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not contain %q", err, p)
		}
	}
}

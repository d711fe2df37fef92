package sandbox_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/release/index"
)

// callApp is call for another app of the sandbox.
func (r *running) callApp(app, export string, input any) error {
	r.t.Helper()
	raw, err := json.Marshal(input)
	must(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	_, err = r.Call(ctx, sandbox.CallRequest{App: app, Export: export, Input: raw})
	return err
}

// second is the test app under another name.
func (w world) second(t testing.TB, edit func(*policy.Policy)) sandbox.App {
	return w.probe(t, "", func(p *policy.Policy) {
		p.App = "other"
		if edit != nil {
			edit(p)
		}
	})
}

func (r *running) onHost(t *testing.T, name, want string) {
	t.Helper()
	if raw, err := os.ReadFile(filepath.Join(r.ws, name)); err != nil || string(raw) != want {
		t.Errorf("on the host %s is %q, %v, want %q", name, raw, err, want)
	}
}

// An app whose policy names what hosts execute may change exactly that; the
// other apps of the sandbox may not. Without the list (ablation) all may.
func TestHostExecutedByPolicy(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		start := func(list []string) *running {
			return w.mustStart(t, func(o *sandbox.Options) {
				o.Apps = []sandbox.App{w.probe(t, "", func(p *policy.Policy) { p.HostExecuted = []string{".git/config", ".git/config.lock"} }), w.second(t, nil)}
				put(t, o.Shares[0].HostDir, ".git/config", "old")
				put(t, o.Shares[0].HostDir, ".git/hooks/pre-commit", "old")
				o.HostExecuted = list
			})
		}
		write := func(r *running, app, name string) error {
			return r.callApp(app, "write", obj{"path": "/workspace/" + name, "content": app})
		}
		r := start(nil)
		if write(r, "other", ".git/config") == nil {
			t.Error("an app without the right changed .git/config")
		}
		r.onHost(t, ".git/config", "old")
		must(t, write(r, "probe", ".git/config"))
		r.onHost(t, ".git/config", "probe")
		for _, app := range []string{"probe", "other"} {
			if write(r, app, ".git/hooks/pre-commit") == nil {
				t.Errorf("%s changed a hook", app)
			}
			must(t, write(r, app, "plain")) // control: the folder can be written
			r.onHost(t, "plain", app)
		}
		r.onHost(t, ".git/hooks/pre-commit", "old")
		r.onHost(t, ".git/config", "probe")
		must(t, r.Close(t.Context()))

		r = start([]string{}) // ablation
		must(t, write(r, "other", ".git/config"))
		r.onHost(t, ".git/config", "other")
		must(t, write(r, "probe", ".git/hooks/pre-commit"))
		r.onHost(t, ".git/hooks/pre-commit", "probe")
	})
}

// startFakeApp tries to start an app whose policy was edited; no guest is there.
func startFakeApp(t *testing.T, edit func(*policy.Policy)) (*sandbox.Sandbox, error) {
	t.Helper()
	return sandbox.Start(t.Context(), sandbox.Options{
		Machine: &fakeMachine{}, Image: &image.Image{Index: index.Index{Landlock: 11}}, Apps: []sandbox.App{world{}.probe(t, "", edit)},
	})
}

// A name that no list has would protect nothing.
func TestHostExecutedUnknown(t *testing.T) {
	_, err := startFakeApp(t, func(p *policy.Policy) { p.HostExecuted = []string{".git/hook"} })
	contains(t, err, `".git/hook"`, "host_executed")
	if hint.Of(err) == "" {
		t.Error("no hint")
	}
}

// made are the ways in which a name that hosts execute comes into being, each
// with where it then is and how to prepare it.
var made = []struct {
	name  string
	steps []obj // all but the last must succeed
	place string
}{
	{"a file's name", []obj{{"path": "/workspace/.envrc"}}, ".envrc"},
	{"a folder", []obj{{"how": "mkdir", "path": "/workspace/a/.vscode"}}, "a/.vscode"},
	{"in other letters", []obj{{"how": "mkdir", "path": "/workspace/b/.VSCode"}}, "b/.VSCode"},
	{"with a ligature", []obj{{"how": "mkdir", "path": "/workspace/c/.git"}, {"path": "/workspace/c/.git/con\ufb01g"}}, "c/.git/con\ufb01g"},
	{"with a character that is not seen", []obj{{"path": "/workspace/.en\u200dvrc"}}, ".en\u200dvrc"},
	{"prepared and renamed", []obj{{"how": "mkdir", "path": "/workspace/prep"}, {"path": "/workspace/prep/config"}, {"how": "rename", "path": "/workspace/prep", "to": "/workspace/.git"}}, ".git/config"},
	{"renamed from below", []obj{{"how": "mkdir", "path": "/workspace/d/.git"}, {"path": "/workspace/hooks"}, {"how": "rename", "path": "/workspace/hooks", "to": "/workspace/d/.git/hooks"}}, "d/.git/hooks"},
	{"a hard link", []obj{{"path": "/workspace/f"}, {"how": "link", "path": "/workspace/f", "to": "/workspace/.mcp.json"}}, ".mcp.json"},
	{"a symbolic link", []obj{{"how": "symlink", "path": "/workspace/.npmrc", "to": "f"}}, ".npmrc"},
	{"by way of a linked folder", []obj{{"how": "mkdir", "path": "/workspace/e/.git"}, {"how": "symlink", "path": "/workspace/l", "to": "e"}, {"how": "mkdir", "path": "/workspace/l/.git/hooks"}}, "e/.git/hooks"},
	{"a file .git", []obj{{"how": "mkdir", "path": "/workspace/g"}, {"path": "/workspace/g/.git"}}, "g/.git"},
	{"a FIFO", []obj{{"how": "fifo", "path": "/workspace/pipe"}}, "pipe"},
}

// do performs one step of made.
func (r *running) do(step obj) error {
	if step["how"] == nil {
		return r.callApp("probe", "write", step)
	}
	return r.callApp("probe", "tree", step)
}

// Such a name is refused and reported where a server can refuse it, and reported
// where it can not; without the list (ablation) it is neither.
func TestHostExecutedMade(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		refuses := w.machine(nil).Name() != machine.Native
		r, free := w.mustStart(t, nil), w.mustStart(t, func(o *sandbox.Options) { o.HostExecuted = []string{} })
		logs := r.Logs(t.Context())
		for _, c := range made {
			t.Run(c.name, func(t *testing.T) {
				for _, step := range c.steps[:len(c.steps)-1] {
					must(t, r.do(step))
					must(t, free.do(step))
				}
				fifo := c.steps[0]["how"] == "fifo"
				since, last := time.Now(), c.steps[len(c.steps)-1]
				err, freeErr := r.do(last), free.do(last)
				_, onHost := os.Lstat(filepath.Join(r.ws, c.place))
				if refused := err != nil && onHost != nil; refused != refuses {
					t.Errorf("the app got %v, on the host %v", err, onHost)
				}
				if freeErr != nil && !(fifo && refuses) {
					t.Errorf("without the list: %v", freeErr)
				}
				if got := free.Names(since); len(got.List) > 0 && !fifo {
					t.Errorf("without the list %v was reported", got)
				}
				if fifo && refuses {
					return // refused as a FIFO, not for its name
				}
				got := r.Names(since).List
				if len(got) == 0 || refuses != got[0].Refused || !refuses && got[0].Place != c.place {
					t.Fatalf("reported %v", got)
				}
				line := ""
				for r := range logs {
					if line = r.Line; r.Stream == sandbox.LogNames {
						break
					}
				}
				if !strings.HasPrefix(line, map[bool]string{true: "refused: ", false: "not refused: "}[refuses]) || !strings.Contains(line, got[0].Place) {
					t.Errorf("logged %q", line)
				}
			})
		}
		since := time.Now()
		must(t, r.do(obj{"path": "/workspace/ordinary"})) // control
		if got := r.Names(since); len(got.List) > 0 {
			t.Errorf("reported %v", got)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.ContainsFunc(r.events, func(e sandbox.Event) bool { return e.Name != nil }) {
			t.Error("no event")
		}
	})
}

// A file that runs as its owner keeps that bit when it is changed through a
// mapping: so it is read-only, or loses it.
func TestSetuidFileIsNotChanged(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, func(o *sandbox.Options) {
			put(t, o.Shares[0].HostDir, "bin/run", "run")
			put(t, o.Shares[0].HostDir, "bin/plain", "plain")
			must(t, os.Chmod(filepath.Join(o.Shares[0].HostDir, "bin/run"), 0o755|os.ModeSetuid))
		})
		must(t, r.callApp("probe", "tree", obj{"how": "map", "path": "/workspace/bin/plain"})) // control
		r.onHost(t, "bin/plain", "!lain")
		err := r.callApp("probe", "tree", obj{"how": "map", "path": "/workspace/bin/run"})
		info, statErr := os.Stat(filepath.Join(r.ws, "bin/run"))
		must(t, statErr)
		raw, readErr := os.ReadFile(filepath.Join(r.ws, "bin/run"))
		must(t, readErr)
		if info.Mode()&os.ModeSetuid != 0 && string(raw) != "run" {
			t.Errorf("it was changed (%v) and is %v", err, info.Mode())
		}
		if r.machine == machine.Native && !slices.ContainsFunc(r.Notes(), func(n string) bool { return strings.Contains(n, "bin/run") }) {
			t.Errorf("not noted: %q", r.Notes())
		}
	})
}

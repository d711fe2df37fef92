package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	guest "github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

// peer is an app of several, with a worker of fewer rights if told to.
func (w world) peer(t testing.TB, name string, worker bool, edit func(*policy.Policy)) sandbox.App {
	return w.probe(t, "peer", func(p *policy.Policy) {
		p.App = name
		p.Paths = []policy.Path{{Path: "/workspace/" + name, Access: policy.Write}, {Path: "/workspace/shared", Access: policy.Write}}
		p.Exports = []string{"die", "do", "invoke", "narrow", "wait", "who"}
		if edit != nil {
			edit(p)
		}
		if worker {
			p.Exports = slices.DeleteFunc(p.Exports, func(e string) bool { return e == "narrow" })
			narrow := policy.Rights{Paths: []policy.Path{{Path: "/workspace/shared", Access: policy.Read}}}
			p.Workers = []policy.Worker{{Name: "narrow", Rights: narrow.WithClass(), Exports: []string{"narrow"}}}
		}
		p.Rights = p.WithClass()
	})
}

// peers boots apps on one workspace with a folder for each and one for all.
func (w world) peers(t testing.TB, edit func(*sandbox.Options), apps ...sandbox.App) *running {
	t.Helper()
	return w.mustStart(t, func(o *sandbox.Options) {
		for _, name := range []string{"a", "b", "shared"} {
			must(t, os.MkdirAll(filepath.Join(o.Shares[0].HostDir, name), 0o755))
		}
		o.Apps = apps
		if edit != nil {
			edit(o)
		}
	})
}

// ask makes a call of an app and returns its text.
func (r *running) ask(app, export string, input any) (string, error) {
	r.t.Helper()
	raw, err := json.Marshal(input)
	must(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	out, err := r.Call(ctx, sandbox.CallRequest{App: app, Export: export, Input: raw})
	if err != nil {
		return "", err
	}
	var text struct {
		Text string `json:"text"`
	}
	must(r.t, json.Unmarshal(out, &text))
	return text.Text, nil
}

// does asks an app's main process to do something, which must be possible.
func (r *running) does(app, what, arg, text string) string {
	r.t.Helper()
	return r.doesIn(app, "do", what, arg, text)
}

func (r *running) doesIn(app, export, what, arg, text string) string {
	r.t.Helper()
	out, err := r.ask(app, export, obj{"what": what, "arg": arg, "text": text})
	must(r.t, err)
	return out
}

// good fails the test unless an app could do something.
func (r *running) good(app, what, arg, text string) string {
	r.t.Helper()
	out := r.does(app, what, arg, text)
	if strings.HasPrefix(out, "error: ") {
		r.t.Errorf("control: app %s could not %s %s: %s", app, what, arg, out)
	}
	return out
}

// A worker has its own rights: fewer than the main process, whose crash is not
// its own.
func TestWorkers(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.peers(t, nil, w.peer(t, "a", true, nil))
		r.good("a", "write", "/workspace/shared/x", "hello")
		if got := r.doesIn("a", "narrow", "read", "/workspace/shared/x", ""); got != "hello" {
			t.Errorf("control: the worker reads %q", got)
		}
		for _, denied := range [][3]string{{"write", "/workspace/shared/x", "EACCES"}, {"read", "/workspace/a/y", ""}, {"write", "/workspace/a/y", ""}} {
			if got := r.doesIn("a", "narrow", denied[0], denied[1], "x"); !strings.HasPrefix(got, "error: ") {
				t.Errorf("the worker could %s %s", denied[0], denied[1])
			}
		}
		r.good("a", "write", "/workspace/a/y", "x") // the main process could

		info := r.Apps()[0]
		if len(info.Processes) != 2 || info.Processes[1].Name != "a.narrow" || len(info.Exports) != 6 {
			t.Errorf("%+v", info)
		}
		for _, p := range info.Processes {
			if p.Enforced.PolicySHA256 != policy.Digest(info.Policy) || !p.Ready {
				t.Errorf("%+v", p)
			}
		}
		if who, err := r.ask("a", "who", obj{}); err != nil || who != `caller="" app=a exports="die,do,invoke,wait,who"` {
			t.Errorf("%s, %v", who, err)
		}
		_, err := r.ask("a", "other", obj{})
		contains(t, err, `no export "other"`, "narrow")

		// The main process does not notice the end of its worker, nor a call of it.
		under, result := r.inFlight(t, "a")
		<-under
		r.doesIn("a", "narrow", "spawn", "x", "") // so that it has a descendant
		_, err = r.ask("a", "narrow", obj{"what": "kill all"})
		if err != nil { // only its descendants and itself
			contains(t, err, `app "a.narrow" ended`)
		}
		select {
		case err := <-result:
			t.Errorf("a call of the main process ended with its worker: %v", err)
		default:
		}
		if got := r.doesIn("a", "narrow", "read", "/workspace/shared/x", ""); got != "hello" {
			t.Errorf("after its restart the worker reads %q", got)
		}
	})
}

// inFlight starts a call that lasts until the app ends; under is closed once it
// runs.
func (r *running) inFlight(t *testing.T, app string) (under chan struct{}, result chan error) {
	under, result = make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := r.Call(t.Context(), sandbox.CallRequest{App: app, Export: "wait", Input: []byte("{}"), OnMessage: progress(under)})
		result <- err
	}()
	return under, result
}

// What one app has, another neither sees nor affects; what both were granted they
// share.
func TestApart(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		network := func(p *policy.Policy) { p.Connect, p.Bind = []uint16{8080}, []uint16{8080} }
		alone := func(p *policy.Policy) { p.Paths = nil }
		r := w.peers(t, nil, w.peer(t, "a", false, network), w.peer(t, "b", false, network), w.peer(t, "c", false, alone), w.peer(t, "d", false, alone))
		r.good("a", "write", "/workspace/shared/x", "of a")
		if got := r.good("b", "read", "/workspace/shared/x", ""); got != "of a" {
			t.Errorf("b reads %q from the shared folder", got)
		}
		r.good("a", "spawn", "marker-of-a", "")
		for _, c := range []struct{ name, make, arg, look, at string }{
			{"its own folder", "write", "/workspace/a/x", "read", "/workspace/a/x"},
			{"scratch", "write", "/scratch/x", "read", "/scratch/x"},
			{"a port", "listen", "tcp 127.0.0.1:8080", "dial", "tcp 127.0.0.1:8080"},
		} {
			r.good("a", c.make, c.arg, "x")
			r.good("a", c.look, c.at, "")
			if got := r.does("b", c.look, c.at, ""); !strings.HasPrefix(got, "error: ") {
				t.Errorf("b can %s %s of a: %q", c.look, c.name, got)
			}
			if c.make == "write" { // and b does not change it
				r.does("b", "write", c.arg, "of b")
				if got := r.good("a", "read", c.at, ""); got != "x" {
					t.Errorf("b changed %s of a to %q", c.name, got)
				}
			}
		}
		// Sockets of its own an app has on every machine if it has no share.
		for _, socket := range []string{"unix /scratch/sock", "unix @berth-c"} {
			r.good("c", "listen", socket, "")
			r.good("c", "dial", socket, "")
			for _, other := range []string{"a", "d"} {
				if got := r.does(other, "dial", socket, ""); !strings.HasPrefix(got, "error: ") {
					t.Errorf("%s reaches the socket %s of c", other, socket)
				}
			}
		}
		if got := r.does("a", "make shm", "", ""); got == "" {
			r.good("a", "find shm", "", "")
		} else if !strings.HasPrefix(got, "error: ") {
			t.Error(got)
		}
		if got := r.does("b", "find shm", "", ""); !strings.HasPrefix(got, "error: ") {
			t.Error("b finds shared memory of a")
		}
		if got := r.good("a", "processes", "", ""); !strings.Contains(got, "marker-of-a") {
			t.Errorf("control: a does not see its own process: %q", got)
		}
		if got := r.good("b", "processes", "", ""); strings.Contains(got, "marker-of-a") {
			t.Errorf("b sees a process of a: %q", got)
		}
		// Neither signals nor crashes of b reach a.
		under, result := r.inFlight(t, "a")
		<-under
		r.ask("b", "do", obj{"what": "kill all"})
		_, err := r.ask("b", "die", obj{"code": 3})
		contains(t, err, `app "b" ended`)
		if slices.Contains(r.Apps()[1].Enforced.Steps, guest.StepCgroup) {
			r.ask("b", "who", obj{}) // it is started again
			_, err = r.ask("b", "die", obj{"code": -2})
			contains(t, err, `app "b" ended`, "out of memory: its limit is 128 MiB")
		}
		if got := r.good("a", "processes", "", ""); !strings.Contains(got, "marker-of-a") {
			t.Error("a process of a ended with b")
		}
		select {
		case err := <-result:
			t.Errorf("a call of a ended with b: %v", err)
		default:
		}
	})
}

// The order in which apps are named decides nothing.
func TestStartOrder(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		apps := []sandbox.App{w.peer(t, "a", true, nil), w.peer(t, "b", false, nil), w.peer(t, "c", false, func(p *policy.Policy) { p.Paths = nil }), w.peer(t, "d", false, func(p *policy.Policy) { p.Paths = nil })}
		seen := map[string]string{}
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}} {
			var in []sandbox.App
			for _, n := range order {
				in = append(in, apps[n])
			}
			r := w.peers(t, nil, in...)
			for _, info := range r.Apps() {
				for _, p := range info.Processes {
					raw, err := json.Marshal(p.Enforced)
					must(t, err)
					export := "do"
					if p.Worker != policy.Main {
						export = "narrow"
					}
					got := string(raw)
					for _, look := range []string{"/proc/self/mounts", "/proc/self/status", "/proc/self/cgroup"} {
						got += "\n" + stable(r.doesIn(info.Name, export, "read", look, ""))
					}
					for _, path := range []string{"/workspace/a/x", "/workspace/b/x", "/workspace/shared/x", "/tmp/x", "/scratch/x"} {
						got += "\n" + path + " " + r.doesIn(info.Name, export, "write", path, "x")
					}
					got = regexp.MustCompile(`/dev/loop\d+`).ReplaceAllString(got, "LOOP")
					got = strings.ReplaceAll(got, r.ID(), "ID")
					got = strings.ReplaceAll(got, r.ws, "WS")
					if before, again := seen[p.Name]; again && before != got {
						t.Errorf("process %s, first:\n%s\nin another order:\n%s", p.Name, before, got)
					}
					seen[p.Name] = got
				}
			}
			must(t, r.Close(context.Background()))
		}
	})
}

// stable keeps what says what a process may do.
func stable(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		name, _, found := strings.Cut(line, ":\t")
		if !found && !strings.HasPrefix(line, "0::") || slices.Contains([]string{"Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters"}, name) {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return strings.Join(kept, "\n")
}

// One app calls another only where its policy says so, and the other knows who
// calls.
func TestInvoke(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		a := w.peer(t, "a", false, func(p *policy.Policy) {
			p.Invoke = []policy.Invoke{{App: "absent", Exports: []string{}}, {App: "b", Exports: []string{"narrow", "who"}}}
		})
		r := w.peers(t, nil, a, w.peer(t, "b", true, nil))
		if got, err := r.ask("a", "invoke", obj{"app": "b", "export": "who", "input": obj{"what": ""}}); err != nil || !strings.HasPrefix(got, `caller="a" app=b`) {
			t.Errorf("%q, %v", got, err)
		}
		must(t, os.WriteFile(filepath.Join(r.ws, "shared", "x"), []byte("hello"), 0o644))
		in := obj{"app": "b", "export": "narrow", "input": obj{"what": "read", "arg": "/workspace/shared/x"}}
		if got, err := r.ask("a", "invoke", in); err != nil || got != "hello" {
			t.Errorf("through the worker: %q, %v", got, err)
		}
		for _, c := range []struct {
			from, to, export, code string
			want                   []string
		}{
			{"a", "b", "do", protocol.CodeDenied, []string{`may not call do of app "b"`, "app:invoke:b.do"}},
			{"a", "absent", "do", protocol.CodeFailed, []string{`does not run in this sandbox`}},
			{"a", "c", "do", protocol.CodeDenied, []string{`no capability app:invoke:c`}},
			{"b", "a", "who", protocol.CodeDenied, []string{`no capability app:invoke:a`}},
		} {
			_, err := r.ask(c.from, "invoke", obj{"app": c.to, "export": c.export, "input": obj{"what": "env"}})
			contains(t, err, c.want...)
			var said *protocol.Error
			if !errors.As(err, &said) || said.Code != c.code || c.code == protocol.CodeDenied && (said.Path != c.to+"."+c.export || said.App != "") {
				t.Errorf("%s to %s.%s: %+v", c.from, c.to, c.export, err)
			}
		}
		// What the called app was refused is its own, also when the caller passes it on.
		_, err := r.ask("a", "invoke", obj{"app": "b", "export": "narrow", "input": obj{"what": "read", "arg": "/workspace/absent", "text": "fail"}})
		var said *protocol.Error
		if !errors.As(err, &said) || said.Errno != "ENOENT" || said.App != "b" {
			t.Errorf("%+v", err)
		}
		// The host's clients cannot say that they are an app, however they write it.
		for _, line := range []string{
			`{"type":"call","id":"1","export":"who","caller":"a"}`,
			`{"type":"call","id":"1","export":"who","caller":"a","Caller":""}`,
			`{"type":"call","id":"1","export":"who","caller":"a","c\u0061ller":"x"}`,
		} {
			conn, err := r.Open(t.Context(), sandbox.Actor{}, "b", "who")
			must(t, err)
			for part := range strings.SplitSeq(line+"\n", ",") {
				if !strings.HasSuffix(part, "\n") {
					part += ","
				}
				_, err = conn.Write([]byte(part))
				must(t, err)
			}
			m, err := protocol.NewReader(conn).Message()
			must(t, err)
			if !strings.Contains(string(m.Output), `caller=\"\"`) {
				t.Errorf("%s: %s %v", line, m.Output, m.Error)
			}
			conn.Close()
		}
	})
}

// A secret reaches the process that may have it, also after a restart, and
// nobody and nothing else.
func TestSecrets(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		const value = "s3cret-v4lue"
		a := w.peer(t, "a", true, func(p *policy.Policy) { p.Secrets = []string{"TOKEN"} })
		_, err := w.start(t, func(o *sandbox.Options) { o.Apps = []sandbox.App{a} })
		contains(t, err, `"TOKEN" was not given`)
		a.Secrets = map[string]string{"TOKEN": value, "OTHER": value}
		_, err = w.start(t, func(o *sandbox.Options) { o.Apps = []sandbox.App{a} })
		contains(t, err, `"OTHER" was given`)
		a.Secrets = map[string]string{"TOKEN": value}
		r := w.peers(t, nil, a, w.peer(t, "b", false, nil))
		logs := r.Logs(t.Context())
		for range 2 {
			if got := r.good("a", "env", "TOKEN", ""); got != value {
				t.Errorf("a has the secret %q", got)
			}
			if got := r.doesIn("a", "narrow", "env", "TOKEN", ""); got != "" {
				t.Errorf("its worker has the secret %q", got)
			}
			if got := r.good("b", "env", "TOKEN", ""); got != "" {
				t.Errorf("b has the secret %q", got)
			}
			for _, app := range []string{"a", "b"} {
				if got := r.does(app, "grep proc", value, ""); got != "" {
					t.Errorf("app %s finds the secret in %s", app, got)
				}
			}
			_, err = r.ask("a", "die", obj{"code": 3})
			contains(t, err, "exit status 3")
		}
		if strings.Contains(err.Error(), value) {
			t.Errorf("an error has the secret: %v", err)
		}
		must(t, r.Close(context.Background()))
		for rec := range logs {
			if strings.Contains(rec.Line, value) {
				t.Errorf("the log has the secret: %+v", rec)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if strings.Contains(e.String(), value) {
				t.Errorf("an event has the secret: %s", e)
			}
		}
	})
}

// Who loses a call to a replacement is told, also if the new app is ready by then.
func TestReplacedIsSaid(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.peers(t, nil, w.peer(t, "a", true, nil))
		under, result := r.inFlight(t, "a")
		<-under
		must(t, r.Replace(t.Context(), w.peer(t, "a", true, nil)))
		contains(t, <-result, `app "a" was replaced`)
		contains(t, r.Why(t.Context(), "a"), `app "a" was replaced`)
		if got := r.doesIn("a", "narrow", "env", "BERTH_APP", ""); got != "a" {
			t.Errorf("the new worker says %q", got)
		}
	})
}

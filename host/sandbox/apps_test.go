package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	guest "github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

// badApps are apps that are no good, and parts of the one line that says so.
var badApps = []struct {
	name, mode string
	edit       func(*policy.Policy)
	want       []string
}{
	{"exits before it is ready", "exit", nil, []string{`"probe"`, "exit status 3"}},
	{"is never ready", "never", nil, []string{`"probe"`, "ready"}},
	{"offers more than the manifest says", "more", nil, []string{"in the code but not in the manifest: surprise"}},
	{"offers less than the manifest says", "", func(p *policy.Policy) { p.Exports = append(p.Exports, "zip") }, []string{"in the manifest but not in the code: zip"}},
	{"asks for a folder that is not there", "", func(p *policy.Policy) {
		p.Paths = []policy.Path{{Path: "/workspace/missing", Access: policy.Read}}
	}, []string{"/workspace/missing"}},
	{"has a program that is not there", "", func(p *policy.Policy) { p.Argv = []string{"/app/other"} }, []string{"/app/other"}},
}

// A bad app stops the start with one clear line, and leaves nothing (which start
// checks). In the slow VM all of them replace the app of one sandbox instead.
func TestBadApps(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		start := func(app sandbox.App) error {
			_, err := w.start(t, func(o *sandbox.Options) { o.Apps = []sandbox.App{app} })
			return err
		}
		if w.machine(nil).Name() != machine.Native {
			r := w.mustStart(t, nil)
			start = func(app sandbox.App) error { return r.Replace(t.Context(), app) }
		}
		for _, c := range badApps {
			t.Run(c.name, func(t *testing.T) {
				app := w.probe(t, c.mode, c.edit)
				if c.mode == "never" {
					app.ReadyMillis = 2000
				}
				err := start(app)
				contains(t, err, c.want...)
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("the error has more than one line: %v", err)
				}
			})
		}
	})
}

func TestAppDiesInACall(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		_, err := r.call("die", obj{"code": 9})
		contains(t, err, `app "probe" ended`, "exit status 9")
		who, err := r.call("whoami", obj{}) // it is started again, under the same policy
		must(t, err)
		if !strings.Contains(who, "uid=") {
			t.Errorf("after the restart: %q", who)
		}
		_, err = r.call("write", obj{"path": "/tmp/x", "content": "x"})
		contains(t, err, "permission denied")
		_, err = r.call("die", obj{"code": -1})
		contains(t, err, `app "probe" ended`, "killed")
		if strings.Contains(err.Error(), "out of memory") {
			t.Errorf("SIGKILL is taken for a lack of memory: %v", err)
		}
		if !slices.Contains(r.Apps()[0].Enforced.Steps, guest.StepCgroup) {
			return // nothing limits its memory
		}
		_, err = r.call("die", obj{"code": -2})
		contains(t, err, `app "probe" ended`, "out of memory: its limit is 128 MiB")
	})
}

func TestCancel(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		under := make(chan struct{})
		result := make(chan error, 1)
		go func() {
			_, err := r.Call(ctx, sandbox.CallRequest{App: "probe", Export: "wait", Input: []byte("{}"), OnMessage: progress(under)})
			result <- err
		}()
		<-under
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call ended with %v", err)
		}
		_, err := r.call("whoami", obj{}) // control: the app goes on
		must(t, err)
	})
}

func TestRawStream(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		size := 64 << 20
		if r.machine != machine.Native {
			size = 2 << 20 // an emulated processor
		}
		sent := make([]byte, size)
		rand.NewChaCha8([32]byte{1}).Read(sent)
		var got bytes.Buffer
		begin := time.Now()
		out, err := r.Call(t.Context(), sandbox.CallRequest{App: "probe", Export: "echo", Input: []byte("{}"), Upload: bytes.NewReader(sent), Download: &got})
		must(t, err)
		t.Logf("%d MiB both ways in %s", size>>20, time.Since(begin))
		if !bytes.Equal(got.Bytes(), sent) || string(out) != fmt.Sprintf(`{"text":"%d"}`, size) {
			t.Errorf("sent %d bytes, got %d back, and %s", size, got.Len(), out)
		}
		_, err = r.Call(t.Context(), sandbox.CallRequest{App: "probe", Export: "echo", Input: []byte("{}"), Upload: io.MultiReader(bytes.NewReader(sent[:1<<20]), broken{})})
		contains(t, err, "the source broke")
		_, err = r.call("whoami", obj{}) // control
		must(t, err)
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the source broke") }

func TestLogs(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		logs := r.Logs(ctx)
		_, err := r.call("print", obj{"line": "a line of the app", "times": 1})
		must(t, err)
		for rec := range logs {
			if rec.App == "probe" && rec.Stream == "stdout" && rec.Line == "a line of the app" {
				return
			}
		}
		t.Error("the line did not come")
	})
}

// An app that floods its log loses lines, not the host its memory or the app
// its life.
func TestLogFlood(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		lines := 200_000
		if r.machine != machine.Native {
			lines = 5_000
		}
		slow := r.Logs(t.Context()) // nobody reads it
		_, err := r.call("print", obj{"line": strings.Repeat("x", 100), "times": lines})
		must(t, err)
		_, err = r.call("whoami", obj{})
		must(t, err)
		if len(slow) > 2*cap(slow) {
			t.Errorf("a follower holds %d records", len(slow))
		}
	})
}

func TestReplace(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		must(t, os.WriteFile(filepath.Join(r.ws, "old"), []byte("x"), 0o644))
		pending := r.pending(t)
		narrow := w.probe(t, "", func(p *policy.Policy) { p.Paths = []policy.Path{{Path: "/workspace", Access: policy.Read}} })
		must(t, r.Replace(t.Context(), narrow))
		contains(t, <-pending, `app "probe"`)
		_, err := r.call("write", obj{"path": "/workspace/new", "content": "x"})
		var e *protocol.Error
		if !errors.As(err, &e) || e.Errno == "" {
			t.Errorf("write under the narrow policy: %v", err)
		}
		if got, err := r.call("read", obj{"path": "/workspace/old"}); err != nil || got != "x" { // control
			t.Errorf("read under the narrow policy: %q, %v", got, err)
		}
		contains(t, r.Replace(t.Context(), w.probe(t, "exit", nil)), "exit status 3")
		_, err = r.call("whoami", obj{})
		contains(t, err, `"probe"`, "exit status 3")
		must(t, r.Replace(t.Context(), w.probe(t, "", nil))) // and mended
		_, err = r.call("write", obj{"path": "/workspace/new", "content": "x"})
		must(t, err)
	})
}

func TestManyAtOnce(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		number := 6
		if w.machine(nil).Name() != machine.Native {
			number = 2 // an emulated machine is slow enough alone
		}
		var all sync.WaitGroup
		for range number {
			all.Go(func() {
				r, err := w.start(t, nil)
				if err == nil {
					_, err = r.call("whoami", obj{})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthos/berth/init/link"
)

// script is how one run of an app goes.
type script struct {
	launch, enforced, announced error
	silent                      string        // the phase in which it never answers
	lives                       time.Duration // after it is ready; 0: until it is stopped
	status                      string
}

// actor is an instance that follows a script.
type actor struct {
	script
	exited chan struct{}
	once   sync.Once
	how    string
}

func (a *actor) end(how string) { a.once.Do(func() { a.how = how; close(a.exited) }) }

func (a *actor) phase(ctx context.Context, name string, err error) error {
	if a.silent == name {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		a.end(a.status)
	}
	return err
}

func (a *actor) Enforced(ctx context.Context) (link.Enforced, error) {
	return link.Enforced{App: "a"}, a.phase(ctx, "enforced", a.enforced)
}

func (a *actor) Announced(ctx context.Context) (json.RawMessage, error) {
	err := a.phase(ctx, "announced", a.announced)
	if err == nil && a.lives > 0 {
		time.AfterFunc(a.lives, func() { a.end(a.status) })
	}
	return json.RawMessage(`{}`), err
}

func (a *actor) Release() error          { return nil }
func (a *actor) Exited() <-chan struct{} { return a.exited }
func (a *actor) Status() string          { return a.how }
func (a *actor) Tail() string            { return "last words" }
func (a *actor) Stop()                   { a.end("exit status 0") }
func (a *actor) Kill()                   { a.end("signal: killed") }

// drama runs a supervisor over scripts, the last of which repeats, and notes
// what it says, with the time since its start.
type drama struct {
	scripts []script
	deaf    bool // the host never sends Go
	said    []string
	readies []bool
}

func (d *drama) run(ctx context.Context) {
	start := time.Now()
	runs := 0
	note := func(m link.Control) {
		text := m.Name()
		switch {
		case m.Exited != nil:
			text = fmt.Sprintf("exited %q, again in %d ms", m.Exited.Status, m.Exited.RestartMillis)
		case m.Failed != nil:
			text = fmt.Sprintf("failed in %s: %s", m.Failed.Step, m.Failed.Reason)
		}
		d.said = append(d.said, fmt.Sprintf("%s %s", time.Since(start), text))
	}
	s := &supervisor{app: "a", within: 30 * time.Second, goes: make(chan struct{}, 1)}
	s.launch = func(context.Context) (instance, error) {
		sc := d.scripts[min(runs, len(d.scripts)-1)]
		runs++
		return &actor{script: sc, exited: make(chan struct{})}, sc.launch
	}
	s.send = func(m link.Control) {
		note(m)
		if m.Enforced != nil && !d.deaf {
			s.goes <- struct{}{}
		}
	}
	s.ready = func(r bool) { d.readies = append(d.readies, r) }
	note(s.run(ctx))
}

func TestSupervisor(t *testing.T) {
	own := failed("landlock", errors.New("no Landlock here"))
	for name, c := range map[string]struct {
		drama
		stop time.Duration // when it is stopped; 0: never
		want []string
	}{
		"cannot launch": {drama{scripts: []script{{launch: failed("cgroup", errors.New("no cgroup"))}}}, 0,
			[]string{"0s failed in cgroup: no cgroup"}},
		"enforcer refuses": {drama{scripts: []script{{enforced: own, status: "exit status 1"}}}, 0,
			[]string{"0s failed in landlock: no Landlock here"}},
		"enforcer hangs": {drama{scripts: []script{{silent: "enforced"}}}, 0,
			[]string{"30s failed in enforce: was not ready within 30s: waited for the enforcer (signal: killed); it printed:\nlast words"}},
		"host does not let go": {drama{scripts: []script{{}}, deaf: true}, 0,
			[]string{"0s enforced", "30s failed in go: was not ready within 30s: waited for the host to let it go (signal: killed); it printed:\nlast words"}},
		"never announces": {drama{scripts: []script{{silent: "announced"}}}, 0,
			[]string{"0s enforced", "30s failed in ready: was not ready within 30s: waited for its announcement (signal: killed); it printed:\nlast words"}},
		"ends before it announces": {drama{scripts: []script{{announced: errors.New("it ended"), status: "exit status 7"}}}, 0,
			[]string{"0s enforced", "0s failed in ready: it ended (exit status 7); it printed:\nlast words"}},
		"stopped": {drama{scripts: []script{{}}}, time.Hour,
			[]string{"0s enforced", "0s ready", "1h0m0s exited \"exit status 0\", again in 0 ms"}},
		"stopped while it waits to restart": {drama{scripts: []script{{lives: time.Second, status: "exit status 2"}}}, 1500 * time.Millisecond,
			[]string{"0s enforced", "0s ready", "1s exited \"exit status 2\", again in 1000 ms", "1.5s exited \"exit status 2\", again in 0 ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stop > 0 {
					time.AfterFunc(c.stop, cancel)
				}
				c.run(ctx)
				if !slices.Equal(c.said, c.want) {
					t.Errorf("said\n%s\nwant\n%s", strings.Join(c.said, "\n"), strings.Join(c.want, "\n"))
				}
			})
		})
	}
}

func TestBackoffDoublesAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drama{scripts: []script{{lives: time.Second, status: "exit status 2"}}}
		d.run(t.Context())
		var waits []string
		for _, s := range d.said {
			if _, after, ok := strings.Cut(s, "again in "); ok {
				waits = append(waits, strings.TrimSuffix(after, " ms"))
			}
		}
		if want := strings.Fields("1000 2000 4000 8000 16000 30000 30000 30000 30000 30000"); !slices.Equal(waits, want) {
			t.Errorf("waits %v", waits)
		}
		last := d.said[len(d.said)-1]
		if !strings.Contains(last, "failed in restart: ended 11 times without a minute of health; last: exit status 2") {
			t.Error(last)
		}
		if d.readies[len(d.readies)-1] {
			t.Error("given up, and ready")
		}
	})
}

func TestAMinuteOfHealthStartsTheBackoffAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := script{lives: time.Second, status: "x"}, script{lives: time.Minute, status: "y"}
		d := drama{scripts: []script{short, short, short, long, short, {}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d.run(ctx)
		var waits []string
		for _, s := range d.said {
			if _, after, ok := strings.Cut(s, "again in "); ok {
				waits = append(waits, strings.TrimSuffix(after, " ms"))
			}
		}
		if want := strings.Fields("1000 2000 4000 1000 2000 0"); !slices.Equal(waits, want) {
			t.Errorf("waits %v\n%s", waits, strings.Join(d.said, "\n"))
		}
	})
}

// TestFailedRestartsGoOn has an app that was ready once and then is not again.
func TestFailedRestartsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drama{scripts: []script{
			{lives: time.Second, status: "exit status 2"},
			{launch: errors.New("no memory")},
			{lives: time.Hour, status: "exit status 0"},
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		d.run(ctx)
		want := []string{
			"0s enforced", "0s ready", `1s exited "exit status 2", again in 1000 ms`,
			`2s exited "no memory", again in 2000 ms`,
			"4s enforced", "4s ready", `30m0s exited "exit status 0", again in 0 ms`,
		}
		if !slices.Equal(d.said, want) {
			t.Errorf("said\n%s", strings.Join(d.said, "\n"))
		}
	})
}

package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berthos/berth/init/link"
)

// When an app that ended is started again: after one second, twice as long
// each time, at most thirty; anew after a minute of health. An app that never
// reaches that minute is given up after ten restarts, which are three minutes:
// by then it is broken, and a host that goes on waiting deserves to know.
const (
	firstBackoff  = time.Second
	maxBackoff    = 30 * time.Second
	healthyAfter  = time.Minute
	maxRestarts   = 10
	defaultReady  = 30 * time.Second // from start to ready
	longestReady  = 10 * time.Minute
	exitFor       = time.Second // from an app's closed connection to its exit
	stepGo        = "go"
	stepReady     = "ready"
	stepGivenUp   = "restart"
	stepStart     = "start"
	stepEnforcing = "enforce"
)

// instance is one run of an app: a started enforcer that becomes the app.
type instance interface {
	Enforced(ctx context.Context) (link.Enforced, error)
	Release() error // lets it execute
	Announced(ctx context.Context) (json.RawMessage, error)
	Exited() <-chan struct{}
	Status() string // once Exited
	Tail() string   // the last lines of stderr, "" if none
	Stop()          // in order, by force after two seconds; returns once Exited
	Kill()          // returns once Exited
}

// failure is an error with the step that failed.
type failure struct {
	step string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(step string, err error) error { return &failure{step, err} }

// stepOf returns the step that an error belongs to.
func stepOf(err error, otherwise string) string {
	var f *failure
	if errors.As(err, &f) {
		return f.step
	}
	return otherwise
}

// supervisor runs one app until it is stopped, given up, or fails to start.
type supervisor struct {
	app    string
	launch func(ctx context.Context) (instance, error)
	send   func(link.Control)
	ready  func(bool)
	within time.Duration // from start to ready
	goes   chan struct{} // the host's Go, buffered
}

// run returns the app's last message. Before the first Ready a failure is
// final: whoever started the app is there to be told.
func (s *supervisor) run(ctx context.Context) link.Control {
	backoff, restarts, everReady := firstBackoff, 0, false
	for {
		healthy, err := s.attempt(ctx)
		everReady = everReady || healthy > 0
		switch {
		case ctx.Err() != nil:
			return link.Control{Exited: &link.Exited{App: s.app, Status: err.Error()}}
		case !everReady:
			return s.failure(stepOf(err, stepStart), err)
		}
		if healthy >= healthyAfter {
			backoff, restarts = firstBackoff, 0
		}
		if restarts == maxRestarts {
			return s.failure(stepGivenUp, fmt.Errorf("ended %d times without a minute of health; last: %w", restarts+1, err))
		}
		restarts++
		s.send(link.Control{Exited: &link.Exited{App: s.app, Status: err.Error(), RestartMillis: backoff.Milliseconds()}})
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return link.Control{Exited: &link.Exited{App: s.app, Status: err.Error()}}
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (s *supervisor) failure(step string, err error) link.Control {
	return link.Control{Failed: &link.Failed{App: s.app, Step: step, Reason: err.Error()}}
}

// attempt runs the app once and returns how long it was ready, and how it ended.
func (s *supervisor) attempt(ctx context.Context) (healthy time.Duration, err error) {
	inst, err := s.launch(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.start(ctx, inst); err != nil {
		inst.Kill()
		return 0, err
	}
	since := time.Now()
	select {
	case <-inst.Exited():
	case <-ctx.Done():
		s.ready(false)
		inst.Stop()
	}
	s.ready(false)
	return max(time.Since(since), 1), errors.New(inst.Status())
}

// start takes an instance from its start to ready.
func (s *supervisor) start(ctx context.Context, inst instance) error {
	late := fmt.Errorf("was not ready within %s", s.within)
	ctx, cancel := context.WithTimeoutCause(ctx, s.within, late)
	defer cancel()
	// A Go that comes from now on is an answer to this attempt.
	select {
	case <-s.goes:
	default:
	}
	enforced, err := inst.Enforced(ctx)
	if err != nil {
		return s.explain(ctx, inst, stepEnforcing, err)
	}
	s.send(link.Control{Enforced: &enforced})
	select {
	case <-s.goes:
	case <-inst.Exited():
		return s.explain(ctx, inst, stepGo, errors.New("ended"))
	case <-ctx.Done():
		return s.explain(ctx, inst, stepGo, errors.New("the host did not let it go"))
	}
	if err := inst.Release(); err != nil {
		return s.explain(ctx, inst, stepGo, err)
	}
	announce, err := inst.Announced(ctx)
	if err != nil {
		return s.explain(ctx, inst, stepReady, err)
	}
	s.ready(true)
	s.send(link.Control{Ready: &link.Ready{App: s.app, Announce: announce}})
	return nil
}

// awaited says what a start waits for in each of its steps.
func awaited(step string) string {
	switch step {
	case stepEnforcing:
		return "the enforcer"
	case stepGo:
		return "the host to let it go"
	}
	return "its announcement"
}

// explain turns an error on the way to ready into what a user can act on: the
// deadline, or how the app ended and what it said last.
func (s *supervisor) explain(ctx context.Context, inst instance, step string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: waited for %s", cause, awaited(step))
	} else {
		// An app that ends breaks its connection first; its status says more.
		select {
		case <-inst.Exited():
		case <-time.After(exitFor):
		}
	}
	inst.Kill()
	var own *failure
	if errors.As(err, &own) {
		return err // the enforcer's own words
	}
	err = fmt.Errorf("%w (%s)", err, inst.Status())
	if tail := inst.Tail(); tail != "" {
		err = fmt.Errorf("%w; it printed:\n%s", err, tail)
	}
	return failed(step, err)
}

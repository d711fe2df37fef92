package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/link"
)

// Replace ends the app that a.Policy names, if it runs, and starts it anew with
// this policy and code. The sandbox goes on. After an error the app does not
// run, unless the new one could not even be brought into the guest.
func (s *Sandbox) Replace(ctx context.Context, a App) error {
	spec, err := s.checkApp(a)
	if err != nil {
		return err
	}
	select {
	case s.replacing <- struct{}{}:
		defer func() { <-s.replacing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	name := spec.policy.App
	s.mu.Lock()
	old := s.processes(name)
	s.mu.Unlock()
	if len(old) == 0 {
		return fmt.Errorf("cannot replace app %q: this sandbox was not started with it", name)
	}
	if err := s.knowsViews(spec); err != nil {
		return err
	}
	if err := s.sendCode(ctx, spec); err != nil {
		return s.orReason(fmt.Errorf("cannot replace app %q: %w", name, err))
	}
	if err := s.stopAll(ctx, old, fmt.Errorf("app %q was replaced", name)); err != nil {
		return err
	}
	if err := s.instance.Limit(name, spec.policy.Limits); err != nil {
		return fmt.Errorf("cannot replace app %q: %w", name, err)
	}
	all, err := s.startApp(spec)
	if err == nil {
		err = s.awaitReady(ctx, all)
	}
	if err != nil && len(all) > 1 { // an app does not run by halves
		err = errors.Join(err, s.stopAll(ctx, all, err))
	}
	return err
}

// knowsViews refuses, before anything is stopped, an app that sees the shares in
// a way that was not prepared.
func (s *Sandbox) knowsViews(spec appSpec) error {
	for _, worker := range spec.policy.Processes() {
		p, err := spec.policy.For(worker)
		if err == nil {
			_, err = s.sharesFor(p.App, p.Rights)
		}
		if err != nil {
			return hint.Errorf(hint.Of(err), "cannot replace app %q: %w", spec.policy.App, err)
		}
	}
	return nil
}

// stopAll ends processes for a reason, which their calls are told, and waits
// until the guest has forgotten them.
func (s *Sandbox) stopAll(ctx context.Context, all []*app, reason error) error {
	for _, a := range all {
		if err := s.stopApp(a, reason); err != nil {
			return err
		}
	}
	for _, a := range all {
		if err := s.awaitLeft(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) stopApp(a *app, reason error) error {
	s.mu.Lock()
	left := a.left
	if a.over == nil {
		a.over = reason
	}
	s.mu.Unlock()
	s.cut(a, reason)
	a.cancel(reason) // a process without calls ends at once
	if left {
		return nil
	}
	if err := s.send(link.Control{Stop: &link.Stop{App: a.name, Reason: "replaced"}}); err != nil {
		return s.orReason(fmt.Errorf("cannot stop app %q: %w", a.name, err))
	}
	return nil
}

func (s *Sandbox) awaitLeft(ctx context.Context, a *app) error {
	for {
		s.mu.Lock()
		left, changed := a.left, a.changed
		s.mu.Unlock()
		if left {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot stop app %q: %w", a.name, context.Cause(ctx))
		}
	}
}

package sandbox

import (
	"context"
	"fmt"

	"github.com/berthos/berth/init/link"
)

// Replace ends the app that a.Policy names, if it runs, and starts it anew with
// this policy and code. The sandbox goes on. After an error the app does not
// run, unless the new one could not even be brought into the guest.
func (s *Sandbox) Replace(ctx context.Context, a App) error {
	spec, err := s.checkApp(a, len(s.o.Apps))
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
	old, err := s.find(name)
	if err != nil {
		return fmt.Errorf("cannot replace app %q: this sandbox was not started with it", name)
	}
	start, err := s.sendCode(ctx, spec)
	if err != nil {
		return s.orReason(fmt.Errorf("cannot replace app %q: %w", name, err))
	}
	if err := s.stopApp(ctx, old); err != nil {
		return err
	}
	if err := s.instance.Limit(name, spec.policy.Limits); err != nil {
		return fmt.Errorf("cannot replace app %q: %w", name, err)
	}
	return s.startApp(ctx, spec, start)
}

// stopApp ends an app and waits until the guest has forgotten it.
func (s *Sandbox) stopApp(ctx context.Context, a *app) error {
	s.mu.Lock()
	left := a.left
	replaced := fmt.Errorf("app %q was replaced", a.policy.App)
	if a.over == nil {
		a.over = replaced
	}
	s.mu.Unlock()
	a.cancel(replaced) // an app without calls ends at once
	if left {
		return nil
	}
	if err := s.send(link.Control{Stop: &link.Stop{App: a.policy.App, Reason: "replaced"}}); err != nil {
		return s.orReason(fmt.Errorf("cannot stop app %q: %w", a.policy.App, err))
	}
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
			return fmt.Errorf("cannot stop app %q: %w", a.policy.App, context.Cause(ctx))
		}
	}
}

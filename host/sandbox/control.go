package sandbox

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berthos/berth/init/link"
)

// readControl takes the guest's messages until the stream ends.
func (s *Sandbox) readControl() {
	defer s.endWithLink()
	defer close(s.read)
	for {
		m, err := s.control.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && s.session.Err() == nil {
				s.ending("the guest broke the link: " + err.Error())
				s.instance.Kill()
			}
			return
		}
		s.handle(m)
	}
}

// endWithLink ends a machine that goes on without its link.
func (s *Sandbox) endWithLink() {
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		s.ending("the guest closed the link")
		s.instance.Kill()
	}
}

func (s *Sandbox) handle(m link.Control) {
	switch {
	case m.Step != nil:
		s.emit(Event{Step: m.Step})
	case m.Booted != nil:
		s.onBooted(m.Booted)
	case m.Enforced != nil:
		s.withApp(m.Enforced.App, func(a *app) { s.onEnforced(a, m.Enforced) })
	case m.Ready != nil:
		s.withApp(m.Ready.App, func(a *app) { s.onReady(a, m.Ready) })
	case m.Exited != nil:
		s.withApp(m.Exited.App, func(a *app) { s.onExited(a, m.Exited) })
	case m.Failed != nil && m.Failed.App != "":
		s.withApp(m.Failed.App, func(a *app) { s.onFailed(a, m.Failed) })
	case m.Failed != nil:
		s.ending(fmt.Sprintf("guest: step %q: %s", m.Failed.Step, m.Failed.Reason))
		s.emit(Event{Failed: m.Failed})
	case m.Down != nil:
		s.onDown(m.Down)
	case m.Pong != nil:
		s.mu.Lock()
		s.pong = m.Pong.N
		s.mu.Unlock()
	default:
		s.log.Warn("guest sent a message that only hosts send", "message", m.Name())
	}
}

func (s *Sandbox) onBooted(b *link.Booted) {
	s.mu.Lock()
	first := s.booted == nil
	if first {
		s.booted = b
	}
	s.mu.Unlock()
	if first {
		close(s.boot)
		s.emit(Event{Booted: b})
	}
}

func (s *Sandbox) onDown(d *link.Down) {
	if d.Reason != "" {
		s.ending(d.Reason)
	} else {
		s.ending("the guest shut down")
	}
}

// withApp calls f for an app that the guest may speak about.
func (s *Sandbox) withApp(name string, f func(*app)) {
	s.mu.Lock()
	a := s.apps[name]
	s.mu.Unlock()
	if a == nil {
		s.log.Warn("guest spoke of an app that was not started", "app", name)
		return
	}
	f(a)
}

// Intervals of keepTime.
const (
	timeEvery  = 10 * time.Second
	deadAfter  = 4 // unanswered pings in a row
	sendWithin = 10 * time.Second
)

// keepTime sends the host's clock from time to time, as a guest that was paused
// does not notice, and ends a sandbox whose guest does not answer any more. A
// host that was itself suspended gives the guest its whole time anew.
func (s *Sandbox) keepTime() {
	tick := time.NewTicker(timeEvery)
	defer tick.Stop()
	for n := int64(1); ; n++ {
		select {
		case <-s.session.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		missed := n - 1 - s.pong
		s.mu.Unlock()
		if missed >= deadAfter {
			s.ending(fmt.Sprintf("the guest has not answered for %s", deadAfter*timeEvery))
			s.instance.Kill()
			return
		}
		now := link.Control{Time: &link.Time{UnixNano: time.Now().UnixNano()}}
		if s.send(now) != nil || s.send(link.Control{Ping: &link.Ping{N: n}}) != nil {
			s.log.Warn("guest does not read its control stream")
		}
	}
}

// send sends a control message unless the guest does not read.
func (s *Sandbox) send(m link.Control) error {
	if s.control == nil {
		return link.ErrClosed
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	return s.control.Send(m)
}

package sandbox

import (
	"context"
	"time"

	"github.com/berthos/berth/init/link"
)

// closeWithin is how long a guest may take to shut down in order.
const closeWithin = 3 * time.Second

// Close ends the sandbox in order, by force if the guest takes longer than a
// few seconds or ctx ends, and returns when nothing is left.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ending("the sandbox was closed")
	go func() { _ = s.send(link.Control{Shutdown: &link.Shutdown{}}) }() // a guest that does not read is killed below
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.abort()
	return nil
}

// abort ends the sandbox at once and returns when nothing is left.
func (s *Sandbox) abort() {
	s.instance.Kill()
	<-s.ended
	s.tasks.Wait()
}

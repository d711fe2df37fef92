package boot

import (
	"context"
	"sync"
)

// outbox hands what waits for the host to one writer, in the order that its
// owner chooses. Who puts something in never waits for the host.
type outbox[T any] struct {
	next func() (T, bool) // takes what comes next out of the owner's store; mu is held

	mu    sync.Mutex      // guards the owner's store and what follows
	gone  bool            // nobody reads any more
	empty []chan struct{} // closed once nothing waits

	pending chan struct{}
}

func newOutbox[T any](next func() (T, bool)) outbox[T] {
	return outbox[T]{next: next, pending: make(chan struct{}, 1)}
}

// change lets the owner put something in.
func (o *outbox[T]) change(put func()) {
	o.mu.Lock()
	put()
	o.mu.Unlock()
	o.poke()
}

// take returns what comes next. When nothing does, those who flush are told.
func (o *outbox[T]) take() (T, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.next()
	if !ok {
		o.wake()
	}
	return v, ok
}

// send sends everything that comes until the host is gone.
func (o *outbox[T]) send(to func(T) error) {
	for {
		v, ok := o.take()
		if !ok {
			<-o.pending
			continue
		}
		if to(v) != nil {
			o.mu.Lock()
			o.gone = true
			o.wake()
			o.mu.Unlock()
			return
		}
	}
}

// wake tells those who flush that there is nothing to wait for. mu is held.
func (o *outbox[T]) wake() {
	for _, w := range o.empty {
		close(w)
	}
	o.empty = nil
}

// flush waits until everything was sent, or nobody reads, or ctx ends.
func (o *outbox[T]) flush(ctx context.Context) {
	o.mu.Lock()
	done := make(chan struct{})
	if o.gone {
		close(done)
	} else {
		o.empty = append(o.empty, done)
	}
	o.mu.Unlock()
	o.poke()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (o *outbox[T]) poke() {
	select {
	case o.pending <- struct{}{}:
	default:
	}
}

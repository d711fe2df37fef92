package berth

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/berthos/berth/sdk/protocol"
)

// Limits on raw streams and calls that wait for each other.
const (
	streamWait = 10 * time.Second
	maxWaiting = 16
)

// RawStream is the bulk side of a call: plain bytes in both directions.
type RawStream struct {
	conn net.Conn
	in   io.Reader     // what came with the first line, then conn
	over chan struct{} // closed when the call is
}

// Read reads what the caller sends, until it half-closes.
func (r *RawStream) Read(p []byte) (int, error) { return r.in.Read(p) }

// Write sends to the caller.
func (r *RawStream) Write(p []byte) (int, error) { return r.conn.Write(p) }

// WriteTo copies all that the caller sends in large pieces.
func (r *RawStream) WriteTo(w io.Writer) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r.in}, make([]byte, 256<<10))
}

// ReadFrom sends all of src in large pieces.
func (r *RawStream) ReadFrom(src io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{r.conn}, struct{ io.Reader }{src}, make([]byte, 256<<10))
}

// CloseWrite tells the caller that nothing more comes.
func (r *RawStream) CloseWrite() error {
	if c, ok := r.conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.New("cannot half-close the raw stream: its connection cannot")
}

// Close ends both directions. The end of the call does so too.
func (r *RawStream) Close() error { return r.conn.Close() }

// streams pairs calls with their raw streams, which come in any order.
type streams struct {
	mu      sync.Mutex
	calls   map[string]*pairing   // calls in flight that have one
	waiting map[string]*RawStream // came before their call
	ended   []string              // calls that ended before theirs came, the last few
}

// pairing is a call's side. The mutex of streams guards it.
type pairing struct {
	got     *RawStream
	arrived chan *RawStream // has room for the one that ever comes
}

func (p *pairing) take(r *RawStream) {
	p.got = r
	p.arrived <- r
}

// claim registers a call that has a raw stream. The first function waits for it,
// the second ends it with the call.
func (s *streams) claim(ctx context.Context, q protocol.Request) (func() (*RawStream, error), func(), error) {
	if !q.Stream {
		none := func() (*RawStream, error) {
			return nil, Errorf(protocol.CodeInvalidInput, "the call has no raw stream, and needs one")
		}
		return none, func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[q.ID] != nil {
		return nil, nil, Errorf(protocol.CodeInvalidInput, "a call with ID %.40q is in flight", q.ID)
	}
	p := &pairing{arrived: make(chan *RawStream, 1)}
	s.calls[q.ID] = p
	s.forget(q.ID)
	if r := s.waiting[q.ID]; r != nil {
		delete(s.waiting, q.ID)
		p.take(r)
	}
	wait := sync.OnceValues(func() (*RawStream, error) { return await(ctx, p.arrived) })
	return wait, func() { s.release(q.ID) }, nil
}

func await(ctx context.Context, arrived <-chan *RawStream) (*RawStream, error) {
	late := time.NewTimer(streamWait)
	defer late.Stop()
	select {
	case r := <-arrived:
		context.AfterFunc(ctx, func() { r.conn.SetDeadline(time.Unix(1, 0)) })
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, Errorf(protocol.CodeInvalidInput, "the call's raw stream did not come within %v", streamWait)
	}
}

func (s *streams) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.calls[id].got; r != nil {
		close(r.over)
	} else {
		s.ended = append(s.ended[max(0, len(s.ended)+1-maxWaiting):], id)
	}
	delete(s.calls, id)
}

// forget removes a call from those that ended and says whether it was there.
func (s *streams) forget(id string) bool {
	i := slices.Index(s.ended, id)
	if i >= 0 {
		s.ended = slices.Delete(s.ended, i, i+1)
	}
	return i >= 0
}

// offer hands a stream to its call, or lets it wait. It returns false if the
// stream must be closed at once.
func (s *streams) offer(id string, r *RawStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.calls[id]; p != nil {
		if p.got != nil {
			return false
		}
		p.take(r)
		return true
	}
	if s.forget(id) || len(s.waiting) >= maxWaiting || s.waiting[id] != nil {
		return false
	}
	s.waiting[id] = r
	return true
}

// withdraw takes back a stream whose call did not come. It returns false if the
// call has it.
func (s *streams) withdraw(id string, r *RawStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[id] != r {
		return false
	}
	delete(s.waiting, id)
	return true
}

// serveStream holds a stream's connection until its call is over.
func (s *server) serveStream(conn net.Conn, in *protocol.Reader, id string) {
	r := &RawStream{conn: conn, in: in.Rest(), over: make(chan struct{})}
	if !s.streams.offer(id, r) {
		return
	}
	late := time.NewTimer(streamWait)
	defer late.Stop()
	select {
	case <-r.over:
		return
	case <-late.C:
	case <-s.stopping.Done():
	}
	if !s.streams.withdraw(id, r) {
		<-r.over
	}
}

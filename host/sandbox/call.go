package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/sdk/protocol"
)

// CallRequest is one call of an app's export.
type CallRequest struct {
	App, Export string
	Input       json.RawMessage
	// Upload and Download are the raw stream of the call. If neither is set the
	// call has none.
	Upload   io.Reader
	Download io.Writer
	// OnMessage gets progress and logs; nil ignores them.
	OnMessage func(protocol.Message)
}

// Call makes one call and returns its output. A call that the app answered with
// an error gives a *protocol.Error. If the app or the sandbox dies meanwhile,
// the error says how.
func (s *Sandbox) Call(ctx context.Context, r CallRequest) (json.RawMessage, error) {
	a, conn, err := s.open(ctx, r.App)
	if err != nil {
		return nil, err
	}
	q := protocol.Request{ID: rand.Text(), Export: r.Export, Input: r.Input}
	if r.Upload == nil && r.Download == nil {
		out, err := protocol.Call(ctx, resetter{conn}, q, r.OnMessage)
		return out, s.explain(ctx, a, err)
	}
	q.Stream = true
	raw, err := s.openRaw(ctx, a, q.ID)
	if err != nil {
		conn.Reset()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- pump(ctx, raw, r) }()
	out, err := protocol.Call(ctx, resetter{conn}, q, r.OnMessage)
	if err != nil {
		cancel() // nobody will read or write the raw stream any more
		<-done
		return nil, s.explain(ctx, a, err)
	}
	if err := <-done; err != nil {
		return nil, fmt.Errorf("cannot finish call of %s: raw stream: %w", r.Export, err)
	}
	return out, nil
}

// Open connects to an app's listening socket: what follows is sdk/protocol.
func (s *Sandbox) Open(ctx context.Context, app string) (*Conn, error) {
	_, stream, err := s.open(ctx, app)
	return stream, err
}

func (s *Sandbox) open(ctx context.Context, name string) (*app, *Conn, error) {
	a, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	if err := s.await(ctx, a, func() bool { return a.ready }); err != nil {
		return nil, nil, fmt.Errorf("cannot call app %q: %w", name, err)
	}
	stream, err := s.connect(ctx, a)
	return a, stream, err
}

func (s *Sandbox) find(name string) (*app, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.apps[name]; a != nil {
		return a, nil
	}
	names := slices.Sorted(maps.Keys(s.apps))
	return nil, hint.Errorf("running: "+strings.Join(names, ", "), "cannot call app %q: this sandbox does not run it", name)
}

func (s *Sandbox) connect(ctx context.Context, a *app) (*Conn, error) {
	stream, err := s.session.OpenStream(link.StreamHeader{Type: link.StreamCall, App: a.policy.App})
	if err != nil {
		return nil, s.explain(ctx, a, err)
	}
	defer context.AfterFunc(ctx, stream.Reset)()
	stop, end := context.AfterFunc(a.running, stream.Reset), s.flights.begin(a.policy.App)
	conn := &Conn{Stream: stream, answered: end, forget: func() { stop(); end() }}
	if err := stream.ReceiveReply(); err != nil {
		conn.Reset()
		return nil, s.explain(ctx, a, err)
	}
	return conn, nil
}

// Conn is a connection to an app.
type Conn struct {
	*link.Stream
	answered func()
	forget   func()
	last     lastLine
}

// Read reads what the app says. Its answer is the end of the call, although
// either side may close the connection later.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if c.last.begins(p[:n]) || err == io.EOF {
		c.answered()
	}
	return n, err
}

// Close ends both halves as soon as what was written is under way.
func (c *Conn) Close() error {
	c.forget()
	return c.Stream.Close()
}

// Reset ends both halves at once: the app sees its caller go away.
func (c *Conn) Reset() {
	c.forget()
	c.Stream.Reset()
}

func (s *Sandbox) openRaw(ctx context.Context, a *app, id string) (*Conn, error) {
	raw, err := s.connect(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := protocol.NewWriter(raw).Request(protocol.Request{Type: protocol.TypeStream, ID: id}); err != nil {
		raw.Reset()
		return nil, s.explain(ctx, a, err)
	}
	return raw, nil
}

// pump carries the raw bytes of a call both ways until both ends are done.
func pump(ctx context.Context, raw *Conn, r CallRequest) error {
	defer raw.Close()
	defer context.AfterFunc(ctx, raw.Reset)()
	up := make(chan error, 1)
	go func() {
		var err error
		if r.Upload != nil {
			_, err = io.Copy(raw, r.Upload)
		}
		up <- errors.Join(err, raw.CloseWrite())
	}()
	sink := r.Download
	if sink == nil {
		sink = io.Discard
	}
	_, err := io.Copy(sink, raw)
	if err != nil {
		raw.Reset()
	}
	return errors.Join(err, <-up)
}

// resetter ends both halves on Close, which is how a call is cancelled while
// its answer is being read.
type resetter struct{ *Conn }

func (r resetter) Close() error {
	r.Reset()
	return nil
}

// explainWithin is how long a broken call waits to learn what broke it.
const explainWithin = 2 * time.Second

// explain adds to an error of the transport how the app or the sandbox died, if
// that is what happened: the news may come a moment after the stream broke.
func (s *Sandbox) explain(ctx context.Context, a *app, err error) error {
	var said *protocol.Error
	if err == nil || errors.As(err, &said) || ctx.Err() != nil || errors.Is(err, link.ErrRefused) {
		return err
	}
	if why := s.died(ctx, a); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// Why says how an app or the sandbox died, for whoever lost a connection to it;
// nil if it lives.
func (s *Sandbox) Why(ctx context.Context, app string) error {
	a, err := s.find(app)
	if err != nil {
		return err
	}
	return s.died(ctx, a)
}

func (s *Sandbox) died(ctx context.Context, a *app) error {
	limited, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	if a.running.Err() == nil && s.await(limited, a, func() bool { return !a.ready }) != nil && limited.Err() != nil {
		return nil // it lives: the connection alone broke
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.running.Err() != nil:
		return context.Cause(a.running)
	case s.reason != "":
		return fmt.Errorf("%w: %s", ErrEnded, s.reason)
	case a.gone != "":
		return fmt.Errorf("app %q ended: %s", a.policy.App, a.gone)
	}
	return a.over
}

package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// Actor is who calls; empty: this process.
	Actor Actor
}

// Call makes one call and returns its output. A call that the app answered with
// an error gives a *protocol.Error. If the app or the sandbox dies meanwhile,
// the error says how.
func (s *Sandbox) Call(ctx context.Context, r CallRequest) (json.RawMessage, error) {
	a, conn, err := s.open(ctx, r.Actor, r.App, r.Export)
	if err != nil {
		return nil, err
	}
	conn.checked = true // nobody else writes on it
	q := protocol.Request{ID: rand.Text(), Export: r.Export, Input: r.Input}
	if err := conn.record.begin(q); err != nil {
		conn.Reset()
		return nil, err
	}
	if r.Upload == nil && r.Download == nil {
		out, err := protocol.Call(ctx, resetter{conn}, q, r.OnMessage)
		return out, s.explain(ctx, a, err)
	}
	q.Stream = true
	raw, err := s.openRaw(ctx, a, q.ID, q.Export)
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

// Open connects somebody to the process of an app that serves an export: what
// follows is sdk/protocol.
func (s *Sandbox) Open(ctx context.Context, who Actor, app, export string) (*Conn, error) {
	_, stream, err := s.open(ctx, who, app, export)
	return stream, err
}

func (s *Sandbox) open(ctx context.Context, who Actor, name, export string) (*app, *Conn, error) {
	a, err := s.find(name, export)
	if err != nil {
		return nil, nil, err
	}
	if err := s.await(ctx, a, func() bool { return a.ready }); err != nil {
		return nil, nil, fmt.Errorf("cannot call app %q: %w", name, err)
	}
	stream, err := s.connect(ctx, a)
	if err == nil && s.journal.to != nil {
		stream.record = &callRecord{j: s.journal, app: a.name, actor: who.orSelf()}
	}
	return a, stream, err
}

// find returns the process that serves an export, or the first one for a name
// that it answers with its own.
func (s *Sandbox) find(name, export string) (*app, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.processes(name)
	if len(all) == 0 {
		names := []string{}
		for _, a := range s.apps {
			names = append(names, a.policy.App)
		}
		slices.Sort(names)
		return nil, hint.Errorf("running: "+strings.Join(slices.Compact(names), ", "), "cannot call app %q: this sandbox does not run it", name)
	}
	worker, served := all[0].policy.Serves(export)
	for _, a := range all {
		if served && a.worker == worker {
			return a, nil
		}
	}
	if len(all) > 1 && export != "" { // a process knows only its own
		return nil, &protocol.Error{Code: protocol.CodeUnknownExport, Message: fmt.Sprintf("app has no export %q; it has %s", export, strings.Join(all[0].policy.AllExports(), ", "))}
	}
	return all[0], nil
}

// Process names the process of an app that serves an export, as logs, events and
// denials name it.
func (s *Sandbox) Process(app, export string) (string, error) {
	a, err := s.find(app, export)
	if err != nil {
		return "", err
	}
	return a.name, nil
}

func (s *Sandbox) connect(ctx context.Context, a *app) (*Conn, error) {
	stream, err := s.session.OpenStream(link.StreamHeader{Type: link.StreamCall, App: a.name})
	if err != nil {
		return nil, s.explain(ctx, a, err)
	}
	defer context.AfterFunc(ctx, stream.Reset)()
	stop, end := context.AfterFunc(a.running, stream.Reset), s.flights.begin(a.name)
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

	head    []byte // what was written of the first line
	checked bool   // the first line was passed on
	record  *callRecord
}

// Write passes on what the caller says. Its first line is written anew, so that
// it says what was read here and nothing else, and no caller says that it is an
// app: only the guest does.
func (c *Conn) Write(p []byte) (int, error) {
	if c.checked {
		return c.Stream.Write(p)
	}
	c.head = append(c.head, p...)
	end := bytes.IndexByte(c.head, '\n') + 1
	if end == 0 && len(c.head) <= protocol.MaxMessage {
		return len(p), nil
	}
	q, line := withoutCaller(c.head[:end])
	if err := c.record.begin(q); err != nil {
		return 0, err
	}
	if _, err := c.Stream.Write(append(line, c.head[end:]...)); err != nil {
		return 0, err
	}
	c.head, c.checked = nil, true
	return len(p), nil
}

// CloseWrite ends our half.
func (c *Conn) CloseWrite() error {
	if len(c.head) > 0 { // no line, and the app will say so
		if err := c.record.begin(protocol.Request{}); err != nil {
			return err
		}
		if _, err := c.Stream.Write(c.head); err != nil {
			return err
		}
		c.head, c.checked = nil, true
	}
	return c.Stream.CloseWrite()
}

// withoutCaller returns a first line without its caller, and what it asks for.
// What is no line of the protocol cannot name one: it is left to the app to refuse.
func withoutCaller(line []byte) (protocol.Request, []byte) {
	q, err := protocol.NewReader(bytes.NewReader(line)).Request()
	if err != nil && json.Valid(line) {
		q = protocol.Request{Type: q.Type}
	} else if err != nil {
		return protocol.Request{}, line
	}
	q.Caller = ""
	clean, err := protocol.EncodeRequest(q)
	if err != nil {
		return q, []byte("{}\n")
	}
	return q, clean
}

// Read reads what the app says. Its answer is the end of the call, although
// either side may close the connection later.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if c.last.begins(p[:n]) || err == io.EOF {
		c.answered()
	}
	if lost := c.record.read(p[:n]); lost != nil {
		return 0, lost // an answer that is not in the trail is none
	}
	return n, err
}

// Close ends both halves as soon as what was written is under way.
func (c *Conn) Close() error {
	c.forget()
	c.record.gone("the connection ended without an answer")
	return c.Stream.Close()
}

// Reset ends both halves at once: the app sees its caller go away.
func (c *Conn) Reset() {
	c.forget()
	c.record.gone("the call was cut off")
	c.Stream.Reset()
}

func (s *Sandbox) openRaw(ctx context.Context, a *app, id, export string) (*Conn, error) {
	raw, err := s.connect(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := protocol.NewWriter(raw).Request(protocol.Request{Type: protocol.TypeStream, ID: id, Export: export}); err != nil {
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

// explainWithin is how long a broken call waits to learn what broke it: the
// kernel may have much to clear away behind an app that it killed for its memory.
const explainWithin = 5 * time.Second

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

// recently is how long ago a process may have ended, or been replaced, to be the
// reason why a connection was lost.
const recently = 10 * time.Second

// cutBy says what cut the connections to a process, and when.
type cutBy struct {
	why error
	at  time.Time
}

// cut notes that the connections to a process are lost.
func (s *Sandbox) cut(a *app, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[a.policy.App] = cutBy{why, time.Now()}
}

// Why says how an app, a process of it, or the sandbox died, or that the app was
// replaced, for whoever has just lost a connection to it; nil if it lives.
func (s *Sandbox) Why(ctx context.Context, app string) error {
	a, err := s.find(app, "")
	if err != nil {
		return err
	}
	for try := range 2 {
		s.mu.Lock()
		last, reason := s.cuts[app], s.reason
		s.mu.Unlock()
		if last.why != nil && time.Since(last.at) < recently && reason == "" {
			return last.why
		}
		if try == 0 { // the news may be on its way
			if err := s.died(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
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
		return fmt.Errorf("app %q ended: %s", a.name, a.gone)
	}
	return a.over
}

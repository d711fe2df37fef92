package berth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berthos/berth/sdk/protocol"
)

var (
	errCanceled = errors.New("call was cancelled")
	errShutdown = errors.New("app shuts down")
)

// lastWord is how long a cancelled call may take to write to a caller that does
// not read.
const lastWord = 2 * time.Second

// call is one call in progress; its context carries it.
type call struct {
	out     *protocol.Writer
	over    atomic.Bool
	streams bool   // it has a raw stream, which stream waits for
	caller  string // the app that calls
	stream  func() (*RawStream, error)
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Progress reports that value of total is done; total 0 means unknown. Outside a
// call it does nothing. It waits while the caller does not read.
func Progress(ctx context.Context, value, total float64, text string) {
	tell(ctx, protocol.Message{Type: protocol.TypeProgress, Value: value, Total: total, Text: text})
}

// Log sends a line to the caller. Outside a call it does nothing.
func Log(ctx context.Context, level slog.Level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	tell(ctx, protocol.Message{Type: protocol.TypeLog, Level: strings.ToLower(level.String()), Text: text})
}

func tell(ctx context.Context, m protocol.Message) {
	if c := callOf(ctx); c != nil && !c.over.Load() {
		c.out.Message(m) // a caller that is gone is noticed by who reads from it
	}
}

// Stream returns the raw stream of a call, and waits for it to arrive. Reads and
// writes on it fail when the context ends. Asked again it returns the same one.
func Stream(ctx context.Context) (*RawStream, error) {
	c := callOf(ctx)
	if c == nil {
		return nil, errors.New("cannot get the raw stream: not in a call")
	}
	return c.stream()
}

// HasStream says whether the call was made with a raw stream.
func HasStream(ctx context.Context) bool {
	c := callOf(ctx)
	return c != nil && c.streams
}

// Caller returns the app that makes the call, as Berth says: it knows by which
// socket the call came. It is empty if whoever runs the sandbox calls, and
// outside a call.
func Caller(ctx context.Context) string {
	if c := callOf(ctx); c != nil {
		return c.caller
	}
	return ""
}

// serveCall runs one call on its connection, until its last line is written.
func (s *server) serveCall(conn net.Conn, in *protocol.Reader, q protocol.Request) {
	ctx, cancel := context.WithCancelCause(s.calls)
	defer cancel(nil)
	c := &call{out: protocol.NewWriter(conn), streams: q.Stream, caller: q.Caller}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		cancel(waitCancel(in))
	}()
	// A cancelled call whose caller does not read must not hang in a write.
	stop := context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Now().Add(lastWord)) })
	defer stop()
	out, err := s.runCall(context.WithValue(ctx, callKey{}, c), c, q)
	c.over.Store(true)
	s.answer(ctx, c, out, err)
	conn.Close()
	<-gone
}

// waitCancel returns why the call must end: whatever the caller does after its
// call line means so.
func waitCancel(in *protocol.Reader) error {
	q, err := in.Request()
	switch {
	case err == nil && q.Type == protocol.TypeCancel, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return errCanceled
	case err == nil:
		return Errorf(protocol.CodeInvalidInput, "a call is followed by %s", q.Type)
	}
	return Errorf(protocol.CodeInvalidInput, "the connection is broken: %w", err)
}

func (s *server) runCall(ctx context.Context, c *call, q protocol.Request) (json.RawMessage, error) {
	e := s.app.served(q.Export)
	if e == nil {
		return nil, Errorf(protocol.CodeUnknownExport, "app has no export %q; it has %s", q.Export, s.app.names())
	}
	stream, release, err := s.streams.claim(ctx, q)
	if err != nil {
		return nil, err
	}
	defer release()
	c.stream = stream
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.invoke(ctx, e, q.Input)
}

func (s *server) invoke(ctx context.Context, e *export, input json.RawMessage) (out json.RawMessage, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		fmt.Fprintf(s.stderr, "export %s panicked: %v\n%s", e.Name, p, debug.Stack())
		out, err = nil, Errorf(protocol.CodeInternal, "export %s panicked: %v", e.Name, p)
	}()
	out, err = e.call(ctx, input)
	returned = true
	return out, err
}

// answer writes the call's last line.
func (s *server) answer(ctx context.Context, c *call, out json.RawMessage, err error) {
	if err == nil {
		err = c.out.Message(protocol.Message{Type: protocol.TypeResult, Output: out})
		switch {
		case err == nil || isNet(err):
			return
		case errors.Is(err, protocol.ErrTooLong):
			err = Errorf(protocol.CodeFailed, "the result is too large: %w", err)
		default:
			err = Errorf(protocol.CodeInternal, "the result cannot be sent: %w", err)
		}
	} else if ctx.Err() != nil {
		err = canceled(context.Cause(ctx), err)
	}
	c.out.Message(protocol.Message{Type: protocol.TypeError, Error: ToError(err)})
}

// canceled words the error of a call that was ended from outside, whatever the
// export made of it.
func canceled(cause, err error) error {
	var coded *codedError
	if errors.As(cause, &coded) {
		return cause
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		return Errorf(protocol.CodeCanceled, "%w", cause)
	}
	return Errorf(protocol.CodeCanceled, "%w: %w", cause, err)
}

func isNet(err error) bool {
	var e net.Error
	return errors.As(err, &e)
}

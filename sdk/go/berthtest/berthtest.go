// Package berthtest owns the running of an app inside its own tests: served over
// a socket as in a sandbox, called over the app protocol, but not enforced.
package berthtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
)

// Client calls an app that Start serves.
type Client struct {
	socket string
	nextID atomic.Int64
	end    context.CancelFunc
	served chan error
}

// Start serves the app until the test ends, and fails the test if calls were
// still running then.
func Start(t testing.TB, app *berth.App) *Client {
	t.Helper()
	// A socket's path may have 107 bytes, which a test's own folder can exceed.
	dir, err := os.MkdirTemp("", "berth")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "app")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	ctx, end := context.WithCancel(context.Background())
	c := &Client{socket: socket, end: end, served: make(chan error, 1)}
	go func() { c.served <- app.ServeOn(ctx, ln) }()
	t.Cleanup(func() {
		if err := errors.Join(c.Stop(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Stop shuts the app down and returns what Serve would.
func (c *Client) Stop() error {
	c.end()
	err := <-c.served
	c.served <- err // for the next one who asks
	return err
}

// Dial opens a connection to the app, for those who speak the protocol themselves.
func (c *Client) Dial() (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: c.socket, Net: "unix"})
}

// Option changes how one call is made.
type Option func(*callOptions)

type callOptions struct {
	on      func(protocol.Message)
	stream  bool
	send    io.Reader
	receive io.Writer
}

// OnMessage receives the call's progress and logs.
func OnMessage(f func(protocol.Message)) Option { return func(o *callOptions) { o.on = f } }

// WithStream gives the call a raw stream: send is sent on it, what comes back
// goes to receive. Either may be nil.
func WithStream(send io.Reader, receive io.Writer) Option {
	return func(o *callOptions) { o.stream, o.send, o.receive = true, send, receive }
}

// Call makes one call and stores the result in out, which may be nil. What the
// app answers with an error is a *protocol.Error.
func (c *Client) Call(ctx context.Context, export string, in, out any, options ...Option) error {
	var o callOptions
	for _, set := range options {
		set(&o)
	}
	input, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("cannot encode the input of %s: %w", export, err)
	}
	q := protocol.Request{ID: strconv.FormatInt(c.nextID.Add(1), 10), Export: export, Input: input, Stream: o.stream}
	moved := make(chan error, 1)
	if o.stream {
		raw, err := c.Dial()
		if err != nil {
			return err
		}
		defer raw.Close()
		if err := protocol.NewWriter(raw).Request(protocol.Request{Type: protocol.TypeStream, ID: q.ID}); err != nil {
			return err
		}
		go func() { moved <- move(raw, o.send, o.receive) }()
	} else {
		moved <- nil
	}
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	result, err := protocol.Call(ctx, conn, q, o.on)
	// The result decides: the app closes the stream with the call.
	if moveErr := <-moved; err == nil {
		err = moveErr
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(result, out)
}

// move copies both directions of a raw stream and half-closes after sending.
func move(raw *net.UnixConn, send io.Reader, receive io.Writer) error {
	sent := make(chan error, 1)
	go func() {
		var err error
		if send != nil {
			_, err = io.Copy(raw, send)
		}
		sent <- errors.Join(err, raw.CloseWrite())
	}()
	if receive == nil {
		receive = io.Discard
	}
	_, err := io.Copy(receive, raw)
	return errors.Join(err, <-sent)
}

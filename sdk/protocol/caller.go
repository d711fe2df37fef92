package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Hello says hello on a fresh connection and returns the announcement. The
// connection stays open, for a TypeShutdown.
func Hello(conn io.ReadWriter) (Message, error) {
	if err := NewWriter(conn).Request(Request{Type: TypeHello, Protocol: Version}); err != nil {
		return Message{}, fmt.Errorf("cannot say hello to the app: %w", err)
	}
	r := NewReader(conn)
	r.max = MaxAnnounce
	m, err := r.Message()
	return announced(m, err)
}

// ParseAnnounce reads and checks the line with which an app answered a hello.
func ParseAnnounce(line []byte) (Message, error) {
	r := NewReader(io.MultiReader(bytes.NewReader(bytes.TrimSuffix(line, []byte("\n"))), strings.NewReader("\n")))
	r.max = MaxAnnounce
	m, err := r.Message()
	return announced(m, err)
}

// announced judges the first message of an app.
func announced(m Message, err error) (Message, error) {
	switch {
	case errors.Is(err, io.EOF):
		return Message{}, errors.New("cannot learn the app's exports: it closed the connection")
	case err != nil:
		return Message{}, fmt.Errorf("cannot learn the app's exports: %w", err)
	case m.Type == TypeError:
		return Message{}, fmt.Errorf("cannot learn the app's exports: %w", m.Error)
	case m.Type != TypeAnnounce:
		return Message{}, fmt.Errorf("cannot learn the app's exports: %w: %s before the announcement", ErrNotMessage, m.Type)
	case m.Protocol > Version:
		return Message{}, fmt.Errorf("cannot speak to the app: it speaks protocol %d, this build up to %d", m.Protocol, Version)
	}
	return m, nil
}

// Call makes one call on a fresh connection and closes it. Progress and logs go
// to on, which may be nil. A call that the app answers with an error gives an
// *Error. When ctx ends the connection is closed, which cancels the call.
func Call(ctx context.Context, conn io.ReadWriteCloser, q Request, on func(Message)) (json.RawMessage, error) {
	q.Type = TypeCall
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	out, err := call(conn, q, on)
	if !stop() {
		return nil, fmt.Errorf("cannot finish call of %s: %w", q.Export, context.Cause(ctx))
	}
	conn.Close()
	var said *Error
	if err != nil && !errors.As(err, &said) {
		return nil, fmt.Errorf("cannot finish call of %s: %w", q.Export, err)
	}
	return out, err
}

func call(conn io.ReadWriter, q Request, on func(Message)) (json.RawMessage, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	line, err := encode(q, MaxMessage)
	if err != nil {
		return nil, err
	}
	r := NewReader(conn)
	if _, err := conn.Write(line); err != nil {
		// An app that refuses a line closes before it has read all of it.
		if m, _ := r.Message(); m.Type == TypeError {
			return nil, m.Error
		}
		return nil, err
	}
	for {
		m, err := r.Message()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the app closed the connection without a result")
		case err != nil:
			return nil, err
		case m.Type == TypeResult:
			return m.Output, nil
		case m.Type == TypeError:
			return nil, m.Error
		case m.Type == TypeAnnounce:
			return nil, fmt.Errorf("%w: announcement in a call", ErrNotMessage)
		case on != nil:
			on(m)
		}
	}
}

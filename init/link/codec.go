package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"
)

// MaxReply bounds a StreamReply, in bytes.
const MaxReply = 16 << 10

// encodeLine returns v as one line of JSON with its newline.
func encodeLine(v any, limit int) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if b.Len() > limit {
		return nil, fmt.Errorf("%d bytes, at most %d are sent", b.Len(), limit)
	}
	return b.Bytes(), nil
}

// decodeStrict reads one JSON value and refuses unknown keys and what follows.
func decodeStrict(line []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one JSON value on a line")
	}
	return nil
}

// ControlConn speaks Control messages on a StreamControl.
type ControlConn struct {
	stream *Stream
	mu     sync.Mutex // one message at a time on the stream
}

// NewControl speaks Control messages on stream.
func NewControl(stream *Stream) *ControlConn { return &ControlConn{stream: stream} }

// Send sends one message; exactly one field of it must be set. It blocks
// while the peer does not read.
func (c *ControlConn) Send(m Control) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("cannot send control message: %w", err)
	}
	line, err := encodeLine(m, MaxControl)
	if err != nil {
		return fmt.Errorf("cannot send control message %s: %w", m.Name(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.stream.Write(line); err != nil {
		return fmt.Errorf("cannot send control message %s: %w", m.Name(), err)
	}
	return nil
}

// Receive returns the next message. io.EOF means that the peer ended its half.
func (c *ControlConn) Receive() (Control, error) {
	line, err := c.stream.readLine(MaxControl)
	if err == io.EOF {
		return Control{}, err
	}
	var m Control
	if err == nil {
		err = decodeStrict(line, &m)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return Control{}, fmt.Errorf("cannot receive control message: %w", err)
	}
	return m, nil
}

// SetWriteDeadline bounds how long Send may block.
func (c *ControlConn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// Close ends our half of the stream.
func (c *ControlConn) Close() error { return c.stream.Close() }

// set returns the JSON names of the fields that are set.
func (m Control) set() []string {
	var names []string
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := bytes.Cut([]byte(v.Type().Field(i).Tag.Get("json")), []byte(","))
			names = append(names, string(name))
		}
	}
	return names
}

// Name returns the name of the field that is set: "boot", "start", …
func (m Control) Name() string {
	if names := m.set(); len(names) > 0 {
		return names[0]
	}
	return ""
}

func (m Control) check() error {
	if names := m.set(); len(names) != 1 {
		return fmt.Errorf("exactly one field must be set, found %q", names)
	}
	return nil
}

// SendReply answers the header of a stream.
func (s *Stream) SendReply(err error) error {
	r := StreamReply{OK: err == nil}
	if err != nil {
		r.Error = cut(err.Error(), MaxReply/8) // a byte may take six in JSON
	}
	line, err := encodeLine(r, MaxReply)
	if err != nil {
		return fmt.Errorf("cannot answer stream: %w", err)
	}
	if _, err := s.Write(line); err != nil {
		return fmt.Errorf("cannot answer stream: %w", err)
	}
	return nil
}

// ErrRefused is wrapped when the peer answered a stream with an error.
var ErrRefused = errors.New("refused by the peer")

// ReceiveReply waits for the answer to the header; an answer with an error is
// returned as one that wraps ErrRefused and reads like the peer's words.
func (s *Stream) ReceiveReply() error {
	line, err := s.readLine(MaxReply)
	var r StreamReply
	if err == nil {
		err = decodeStrict(line, &r)
	}
	switch {
	case err == io.EOF:
		return fmt.Errorf("cannot receive the stream's answer: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("cannot receive the stream's answer: %w", err)
	case !r.OK:
		return &refused{r.Error}
	}
	return nil
}

type refused struct{ words string }

func (r *refused) Error() string        { return r.words }
func (r *refused) Is(target error) bool { return target == ErrRefused }

// SendLog sends one record on a StreamLog.
func (s *Stream) SendLog(r LogRecord) error {
	line, err := encodeLine(r, maxLogRecord)
	if err != nil {
		return fmt.Errorf("cannot send log record: %w", err)
	}
	if _, err := s.Write(line); err != nil {
		return fmt.Errorf("cannot send log record: %w", err)
	}
	return nil
}

// maxLogRecord is a line in which every byte takes six in JSON, and its frame.
const maxLogRecord = 6*MaxLogLine + 1<<10

// ReceiveLog returns the next record of a StreamLog.
func (s *Stream) ReceiveLog() (LogRecord, error) {
	var r LogRecord
	line, err := s.readLine(maxLogRecord)
	if err == io.EOF {
		return r, err
	}
	if err == nil {
		err = decodeStrict(line, &r)
	}
	if err == nil && len(r.Line) > MaxLogLine {
		err = fmt.Errorf("%w of %d bytes, at most %d are accepted", ErrTooLong, len(r.Line), MaxLogLine)
	}
	if err != nil {
		return LogRecord{}, fmt.Errorf("cannot receive log record: %w", err)
	}
	return r, nil
}

// SendDenial sends one record on a StreamDenials.
func (s *Stream) SendDenial(r DenialRecord) error {
	line, err := encodeLine(r, MaxDenial)
	if err == nil {
		_, err = s.Write(line)
	}
	if err != nil {
		return fmt.Errorf("cannot send denial record: %w", err)
	}
	return nil
}

// ReceiveDenial returns the next record of a StreamDenials.
func (s *Stream) ReceiveDenial() (DenialRecord, error) {
	var r DenialRecord
	line, err := s.readLine(MaxDenial)
	if err == io.EOF {
		return r, err
	}
	if err == nil {
		err = decodeStrict(line, &r)
	}
	if err != nil {
		return DenialRecord{}, fmt.Errorf("cannot receive denial record: %w", err)
	}
	return r, nil
}

// cut shortens s to limit bytes.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

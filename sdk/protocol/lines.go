package protocol

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// How a peer can break the protocol. After any of them the rest of the
// connection has no meaning.
var (
	ErrTooLong    = errors.New("line is too long")
	ErrNotUTF8    = errors.New("line is not UTF-8")
	ErrNotJSON    = errors.New("line is not JSON")
	ErrNotMessage = errors.New("line is not a message of this protocol")
)

// Reader reads the lines of one connection. It never holds more than MaxMessage
// bytes, and its first error is its last word.
type Reader struct {
	buf *bufio.Reader
	max int
	n   int // lines read
	err error
}

// NewReader returns a Reader of r, which must not be read otherwise.
func NewReader(r io.Reader) *Reader {
	return &Reader{buf: bufio.NewReaderSize(r, 8<<10), max: MaxMessage}
}

// NewInvokeReader returns one for a call from app to app, whose first line has
// at most MaxInvoke bytes.
func NewInvokeReader(r io.Reader) *Reader {
	return &Reader{buf: bufio.NewReaderSize(r, 4<<10), max: MaxInvoke}
}

// Request reads and checks a line of the connecting side. io.EOF means that it
// said nothing more.
func (r *Reader) Request() (Request, error) {
	var q Request
	if err := r.next(&q); err != nil {
		return Request{}, err
	}
	return q, r.fail(q.check())
}

// Message reads and checks a line of the app. io.EOF means that it said nothing
// more.
func (r *Reader) Message() (Message, error) {
	var m Message
	if err := r.next(&m); err != nil {
		return Message{}, err
	}
	m.cut()
	return m, r.fail(m.check())
}

// cut shortens text that its sender should have cut.
func (m *Message) cut() {
	m.Text, m.Level = Cut(m.Text, MaxText), Cut(m.Level, MaxText)
	if e := m.Error; e != nil {
		for _, s := range []*string{&e.Message, &e.Op, &e.Path, &e.NewPath, &e.Errno} {
			*s = Cut(*s, MaxText)
		}
	}
}

// Rest returns what follows the lines read so far: the raw bytes of a TypeStream
// connection.
func (r *Reader) Rest() io.Reader { return r.buf }

func (r *Reader) next(v any) error {
	if r.err != nil {
		return r.err
	}
	line, err := r.line()
	r.n++
	switch {
	case errors.Is(err, io.EOF):
		r.err = io.EOF
		return io.EOF
	case err != nil:
		return r.fail(err)
	case !utf8.Valid(line):
		return r.fail(ErrNotUTF8)
	case !json.Valid(line):
		return r.fail(fmt.Errorf("%w: it begins with %.40q", ErrNotJSON, line))
	}
	if err := json.Unmarshal(line, v); err != nil {
		return r.fail(fmt.Errorf("%w: %w", ErrNotMessage, err))
	}
	return nil
}

func (r *Reader) fail(err error) error {
	if err != nil {
		r.err = fmt.Errorf("cannot read line %d of the connection: %w", r.n, err)
	}
	return r.err
}

func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.buf.ReadSlice('\n')
		if len(line)+len(part) > r.max {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLong, r.max)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, fmt.Errorf("%w after %d bytes of it", io.ErrUnexpectedEOF, len(line))
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// Writer writes lines, each with one call to Write, so that it may be used by
// several goroutines if w may (a net.Conn may).
type Writer struct{ w io.Writer }

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Request writes one line of the connecting side.
func (w *Writer) Request(q Request) error {
	if err := q.check(); err != nil {
		return fmt.Errorf("cannot send request: %w", err)
	}
	return w.send(q, MaxMessage)
}

// EncodeRequest returns the one line that says q.
func EncodeRequest(q Request) ([]byte, error) {
	if err := q.check(); err != nil {
		return nil, fmt.Errorf("cannot encode request: %w", err)
	}
	return encode(q, MaxMessage)
}

// Message writes one line of the app. A message that would be too long is not
// written at all (ErrTooLong), and the connection stays usable.
func (w *Writer) Message(m Message) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("cannot send message: %w", err)
	}
	m.Text = Cut(m.Text, MaxText)
	if m.Error != nil {
		e := *m.Error
		e.Message = Cut(e.Message, MaxText)
		m.Error = &e
	}
	if m.Type == TypeAnnounce {
		return w.send(m, MaxAnnounce)
	}
	return w.send(m, MaxMessage)
}

func (w *Writer) send(v any, limit int) error {
	line, err := encode(v, limit)
	if err != nil {
		return err
	}
	_, err = w.w.Write(line)
	return err
}

func encode(v any, limit int) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot encode line: %w", err)
	}
	if b.Len() > limit {
		return nil, fmt.Errorf("cannot send %d bytes: %w: at most %d", b.Len(), ErrTooLong, limit)
	}
	return b.Bytes(), nil
}

// Cut shortens s to at most limit bytes, at a character's border, and says so.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	mark := fmt.Sprintf("… [cut, %d bytes in all]", len(s))
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

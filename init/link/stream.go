package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// maxChunk is the largest body that Write puts into one frame: header and body
// together are what a virtio port takes in one write, and a small frame of
// another stream waits for no more than that.
const maxChunk = 32<<10 - frameHeader

// ErrReset is wrapped when a stream was ended by Reset, here or by the peer.
var ErrReset = errors.New("the stream was reset")

// ErrTooLong is wrapped when a line is longer than its limit.
var ErrTooLong = errors.New("line")

// Stream is one stream of a session. It has two halves: CloseWrite ends ours,
// and Read returns io.EOF when the peer has ended its own.
type Stream struct {
	session *Session
	raw     *yamux.Stream

	rmu  sync.Mutex // guards what follows, for one read
	rest []byte     // read beyond the end of a line

	once sync.Once // the end of our half
}

func (s *Stream) Read(p []byte) (int, error) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if len(s.rest) > 0 {
		n := copy(p, s.rest)
		s.rest = s.rest[n:]
		return n, nil
	}
	return s.read(p)
}

// read turns the end of the session into an error: yamux reports it like the
// end of the stream, and half a file would look like a whole one.
func (s *Stream) read(p []byte) (int, error) {
	n, err := s.raw.Read(p)
	if err == io.EOF && s.session.complete(s.raw.StreamID()) {
		return n, err
	}
	if err == io.EOF {
		err = ErrClosed
	}
	return n, s.explain(err)
}

// Write sends p. It blocks while the peer does not read this stream.
func (s *Stream) Write(p []byte) (int, error) {
	total := 0
	for {
		n, err := s.raw.Write(p[total:min(len(p), total+maxChunk)])
		total += n
		if err != nil {
			return total, s.explain(err)
		}
		if total == len(p) {
			return total, nil
		}
	}
}

func (s *Stream) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	case errors.Is(err, yamux.ErrConnectionReset):
		return ErrReset
	case errors.Is(err, yamux.ErrStreamClosed):
		return net.ErrClosed
	}
	return s.session.cause(err)
}

// CloseWrite ends our half: the peer reads io.EOF after what was written.
func (s *Stream) CloseWrite() error {
	var err error
	s.once.Do(func() { err = s.raw.Close() })
	return err
}

// Close ends our half and discards what the peer still sends, so that the
// stream is over when the peer ends its half. It does not wait for that.
func (s *Stream) Close() error {
	err := s.CloseWrite()
	if !s.session.guard.finished(s.raw.StreamID()) {
		_ = s.raw.SetReadDeadline(time.Time{})
		go func() { _, _ = io.Copy(io.Discard, s) }()
	}
	return err
}

// Reset ends both halves at once and drops what is under way. Reads and writes
// of both sides fail with ErrReset.
func (s *Stream) Reset() {
	_ = s.session.guard.reset(s.raw.StreamID())
}

// SetReadDeadline bounds how long Read may block; zero means for ever.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.raw.SetReadDeadline(t) }

// SetWriteDeadline bounds how long Write may wait for the peer to read.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.raw.SetWriteDeadline(t) }

// readLine returns the next line without its newline, reading at most limit
// bytes of it into memory. At the end of the stream it returns io.EOF, or
// io.ErrUnexpectedEOF within a line.
func (s *Stream) readLine(limit int) ([]byte, error) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	for seen := 0; ; {
		if i := bytes.IndexByte(s.rest[seen:], '\n'); i >= 0 {
			if seen+i > limit {
				break
			}
			line := s.rest[:seen+i]
			s.rest = s.rest[seen+i+1:]
			return line, nil
		}
		if seen = len(s.rest); seen > limit {
			break
		}
		chunk := make([]byte, min(4<<10, limit+1-seen))
		n, err := s.read(chunk)
		s.rest = append(s.rest, chunk[:n]...)
		if n == 0 && err != nil {
			if err == io.EOF && len(s.rest) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w of more than %d bytes", ErrTooLong, limit)
}

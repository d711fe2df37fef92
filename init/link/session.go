package link

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
)

// MaxGuestStreams bounds the streams that a guest may have open: its log, its
// denials, and one for each share.
const MaxGuestStreams = 64

// headerTimeout is how long an opened stream may take to send its header.
const headerTimeout = 10 * time.Second

// ErrClosed is wrapped by what is called on a session that has ended.
var ErrClosed = errors.New("the link is closed")

// Session is one established link. All methods are safe for concurrent use.
type Session struct {
	version int
	mux     *yamux.Session
	guard   *guard
	arrived chan arrival
	done    chan struct{}
	headers sync.WaitGroup

	mu     sync.Mutex // guards what follows
	closed bool       // by our own Close
	err    error      // why the session ended
}

// arrival is a stream of the peer whose header has been read.
type arrival struct {
	header StreamHeader
	stream *Stream
}

func newSession(conn Conn, version int, early []byte, client bool) *Session {
	s := &Session{
		version: version,
		guard:   newGuard(conn, early, client),
		arrived: make(chan arrival),
		done:    make(chan struct{}),
	}
	start := yamux.Server
	if client {
		start = yamux.Client
	}
	mux, err := start(s.guard, muxConfig())
	if err != nil {
		panic(err) // only for a configuration that is wrong in itself
	}
	s.mux = mux
	go s.accept()
	return s
}

// muxConfig turns off every timer of yamux: a machine may be paused for any
// time, and its end is an EOF. The backlog holds all the streams that guard
// lets a peer open, so yamux never resets one by itself.
func muxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:          MaxStreams,
		EnableKeepAlive:        false,
		KeepAliveInterval:      time.Hour, // unused, but checked
		ConnectionWriteTimeout: math.MaxInt64,
		MaxStreamWindowSize:    window,
		StreamOpenTimeout:      0,
		StreamCloseTimeout:     0,
		LogOutput:              io.Discard,
	}
}

// Version is the link version that both sides speak.
func (s *Session) Version() int { return s.version }

// Done is closed when the session ends, whoever ended it.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session ended: nil while it lasts, io.EOF when the peer
// closed the connection, an error wrapping ErrPeer when it broke a limit,
// ErrClosed after our own Close.
func (s *Session) Err() error {
	select {
	case <-s.Done():
	default:
		return nil
	}
	s.guard.mu.Lock()
	reason := s.guard.reason
	s.guard.mu.Unlock()
	if reason != nil {
		return reason
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.err == nil || errors.Is(s.err, yamux.ErrSessionShutdown) {
		return ErrClosed
	}
	return s.err
}

// Close ends the session, its streams and its connection. Bytes that were
// written before are with the connection already.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.mux.Close()
	<-s.done
	s.headers.Wait()
	return err
}

// OpenStream opens a stream and sends its header.
func (s *Session) OpenStream(header StreamHeader) (*Stream, error) {
	line, err := encodeLine(header, MaxHeader)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s stream: %w", header.Type, err)
	}
	if err := s.guard.reserve(); err != nil {
		return nil, fmt.Errorf("cannot open %s stream: %w", header.Type, err)
	}
	raw, err := s.mux.OpenStream()
	if err != nil {
		s.guard.unreserve()
		return nil, fmt.Errorf("cannot open %s stream: %w", header.Type, s.cause(err))
	}
	stream := &Stream{session: s, raw: raw}
	if _, err := stream.Write(line); err != nil {
		stream.Reset()
		return nil, fmt.Errorf("cannot open %s stream: %w", header.Type, err)
	}
	return stream, nil
}

// Accept returns the next stream that the peer opened, its header read.
func (s *Session) Accept() (StreamHeader, *Stream, error) {
	select {
	case a := <-s.arrived:
		return a.header, a.stream, nil
	case <-s.Done():
		return StreamHeader{}, nil, fmt.Errorf("cannot accept a stream: %w", s.cause(ErrClosed))
	}
}

// accept takes streams from yamux at once, so that one opener that is slow
// with its header holds up nobody; guard bounds how many there can be.
func (s *Session) accept() {
	for {
		raw, err := s.mux.AcceptStream()
		if err != nil {
			if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				err = io.EOF // it closed with bytes of ours unread
			}
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			close(s.done)
			return
		}
		s.headers.Go(func() { s.greet(&Stream{session: s, raw: raw}) })
	}
}

// greet reads a stream's header and hands the stream to Accept.
func (s *Session) greet(stream *Stream) {
	_ = stream.SetReadDeadline(time.Now().Add(headerTimeout))
	var header StreamHeader
	line, err := stream.readLine(MaxHeader)
	if err == nil {
		err = decodeStrict(line, &header)
	}
	if err != nil {
		stream.Reset()
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	select {
	case s.arrived <- arrival{header, stream}:
	case <-s.Done():
	}
}

// complete says whether io.EOF on a stream is what the peer meant.
func (s *Session) complete(id uint32) bool {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return !closed && s.guard.finished(id)
}

// cause replaces yamux's words for a session that has ended by our own.
func (s *Session) cause(err error) error {
	if errors.Is(err, yamux.ErrSessionShutdown) || errors.Is(err, ErrClosed) {
		<-s.done // so that the reason is known
	}
	if reason := s.Err(); reason != nil {
		if errors.Is(reason, ErrClosed) {
			return ErrClosed
		}
		return fmt.Errorf("%w: %w", ErrClosed, reason)
	}
	return err
}

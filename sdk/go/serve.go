package berth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthos/berth/sdk/protocol"
)

// Limits of a running app.
const (
	defaultCalls = 64
	defaultGrace = 5 * time.Second
	afterCancel  = time.Second      // what cancelled calls get at shutdown
	firstLine    = 30 * time.Second // for a connection to say what it is
	maxConns     = 256              // open connections; further ones wait in the kernel
	retryAccept  = 50 * time.Millisecond
)

// Serve serves the socket that Berth handed to this process, until it is told to
// shut down, gets SIGTERM or SIGINT, or ctx ends. It returns nil when every call
// had ended.
func (a *App) Serve(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ln, err := inherited()
	if err != nil {
		return fmt.Errorf("cannot serve app %s: %w", a.Name, err)
	}
	if _, err := callees(); err != nil { // also marks their descriptors
		return errors.Join(fmt.Errorf("cannot serve app %s: %w", a.Name, err), ln.Close())
	}
	if names, set := os.LookupEnv(protocol.EnvExports); set {
		list := strings.Split(names, ",")
		a.serves = func(name string) bool { return slices.Contains(list, name) }
	}
	return a.ServeOn(ctx, ln)
}

func inherited() (net.Listener, error) {
	text := os.Getenv(protocol.EnvListenFD)
	if text == "" {
		return nil, fmt.Errorf("%s is not set: an app is started by berth, not by hand", protocol.EnvListenFD)
	}
	fd, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s is %.40q, not the number of a descriptor", protocol.EnvListenFD, text)
	}
	// FileListener duplicates the descriptor close-on-exec; the inherited one
	// must not reach programs that the app starts.
	f := os.NewFile(uintptr(fd), "listening socket")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d of %s: %w", fd, protocol.EnvListenFD, err)
	}
	return ln, nil
}

// ServeOn serves a listener of the caller's choice and closes it.
func (a *App) ServeOn(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if err := errors.Join(a.errs...); err != nil {
		return fmt.Errorf("cannot serve app %s: %w", a.Name, err)
	}
	s := newServer(a, ln)
	defer s.endCalls(nil)
	stop := context.AfterFunc(ctx, s.stop)
	defer stop()
	err := s.accept()
	s.stop()
	if err := errors.Join(err, s.drain()); err != nil {
		return fmt.Errorf("cannot serve app %s: %w", a.Name, err)
	}
	return nil
}

// server is one run of ServeOn.
type server struct {
	app    App
	ln     net.Listener
	stderr io.Writer
	slots  chan struct{} // one for each running call
	conns  chan struct{} // one for each open connection
	open   sync.WaitGroup

	stopping context.Context // ends at shutdown: nothing new, idle connections close
	stop     func()
	calls    context.Context // ends when running calls had their time
	endCalls context.CancelCauseFunc
	streams  streams
}

func newServer(a *App, ln net.Listener) *server {
	s := &server{app: *a, ln: ln, stderr: a.Stderr, conns: make(chan struct{}, maxConns)}
	if s.stderr == nil {
		s.stderr = os.Stderr
	}
	if s.app.MaxCalls <= 0 {
		s.app.MaxCalls = defaultCalls
	}
	if s.app.Grace <= 0 {
		s.app.Grace = defaultGrace
	}
	s.slots = make(chan struct{}, s.app.MaxCalls)
	s.streams = streams{calls: map[string]*pairing{}, waiting: map[string]*RawStream{}}
	s.calls, s.endCalls = context.WithCancelCause(context.Background())
	stopping, stop := context.WithCancel(context.Background())
	s.stopping = stopping
	s.stop = func() {
		stop()
		ln.Close()
	}
	return s
}

// accept serves connections until the server stops.
func (s *server) accept() error {
	for {
		select {
		case s.conns <- struct{}{}:
		case <-s.stopping.Done():
			return nil
		}
		conn, err := s.ln.Accept()
		switch {
		case err == nil:
			s.open.Go(func() {
				defer func() { <-s.conns }()
				s.serve(conn)
			})
			continue
		case s.stopping.Err() != nil:
			return nil
		case !passes(err):
			return err
		}
		<-s.conns
		select {
		case <-time.After(retryAccept):
		case <-s.stopping.Done():
		}
	}
}

// passes says whether a failed accept may succeed later: the app itself may have
// used up its descriptors.
func passes(err error) bool {
	var e syscall.Errno
	if !errors.As(err, &e) {
		return false
	}
	switch e {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR:
		return true
	}
	return false
}

// drain waits for running calls, then cancels them.
func (s *server) drain() error {
	done := make(chan struct{})
	go func() {
		s.open.Wait()
		close(done)
	}()
	for _, wait := range []time.Duration{s.app.Grace, afterCancel} {
		timer := time.NewTimer(wait)
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
		s.endCalls(errShutdown)
	}
	return fmt.Errorf("%d calls did not end when they were cancelled", len(s.slots))
}

// serve serves one connection.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	idle := context.AfterFunc(s.stopping, func() { conn.Close() })
	defer idle()
	in := protocol.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(firstLine))
	q, err := in.Request()
	if err != nil {
		s.refuse(conn, err)
		return
	}
	conn.SetReadDeadline(time.Time{})
	switch q.Type {
	case protocol.TypeHello:
		s.hello(conn, in)
	case protocol.TypeCall:
		if idle() {
			s.serveCall(conn, in, q)
		}
	case protocol.TypeStream:
		if idle() {
			s.serveStream(conn, in, q.ID)
		}
	default:
		s.refuse(conn, fmt.Errorf("a connection cannot begin with %s", q.Type))
	}
}

// refuse says what was wrong with a first line, if anybody still listens.
func (s *server) refuse(conn net.Conn, err error) {
	if errors.Is(err, io.EOF) || isNet(err) {
		return
	}
	conn.SetWriteDeadline(time.Now().Add(lastWord))
	e := &protocol.Error{Code: protocol.CodeInvalidInput, Message: err.Error()}
	protocol.NewWriter(conn).Message(protocol.Message{Type: protocol.TypeError, Error: e})
}

// hello announces the exports and waits for the word to shut down. Every caller
// speaks version 1, so there is nothing to negotiate yet.
func (s *server) hello(conn net.Conn, in *protocol.Reader) {
	m := protocol.Message{Type: protocol.TypeAnnounce, Protocol: protocol.Version, Exports: s.app.Exports()}
	if err := protocol.NewWriter(conn).Message(m); err != nil {
		s.refuse(conn, fmt.Errorf("cannot announce the exports: %w", err))
		return
	}
	for {
		q, err := in.Request()
		switch {
		case err != nil:
			return
		case q.Type == protocol.TypeShutdown:
			s.stop()
			return
		}
	}
}

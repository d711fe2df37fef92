package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berthos/berth/init/link"
)

// Backend is the sandbox behind a socket.
type Backend interface {
	Describe() Description
	// Open connects a process of this host to the listening socket of app.
	Open(ctx context.Context, who Peer, app, export string) (link.Half, error)
	// Denials returns what was recorded of app since a time. It waits, until ctx
	// ends, for what is under way.
	Denials(ctx context.Context, app string, since time.Time) (Denials, error)
	// Names returns what happened to names of the shares since a time.
	Names(since time.Time) Names
	// Why says how app or the sandbox died; nil if it lives.
	Why(ctx context.Context, app string) error
	// Stop begins the end of a long-lived sandbox.
	Stop() error
	// Logs delivers records from now on until ctx ends.
	Logs(ctx context.Context) <-chan link.LogRecord
}

// Peer is the process at the other end of a connection, as the kernel knows it.
type Peer struct{ PID, UID int }

func peerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return Peer{}, fmt.Errorf("cannot learn who calls: %w", err)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid)}, nil
}

// Listen makes the socket in dir, the sandbox's own private runtime folder.
func Listen(dir string) (*net.UnixListener, error) {
	name := filepath.Join(dir, Socket)
	addr, release, err := address(name)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", name, err)
	}
	defer release()
	l, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", name, err)
	}
	l.SetUnlinkOnClose(addr.Name == name) // else its name is not what it was; the folder goes anyway
	if err := os.Chmod(name, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot make %s private: %w", name, err)
	}
	return l, nil
}

// Serve answers connections until ctx ends, and then waits for them to end.
func Serve(ctx context.Context, l *net.UnixListener, b Backend, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("cannot accept on %s: %w", l.Addr(), err)
		}
		conns.Go(func() {
			defer conn.Close()
			if err := serve(ctx, conn, b); err != nil {
				log.Debug("control connection", "error", err)
			}
		})
	}
}

func serve(ctx context.Context, conn *net.UnixConn, b Backend) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var req request
	if err := readLine(conn, &req); err != nil {
		return err
	}
	switch req.Kind {
	case kindDescribe:
		d := b.Describe()
		return writeLine(conn, reply{Description: &d})
	case kindCall:
		return serveCall(ctx, conn, b, req.App, req.Export)
	case kindDenials:
		return serveDenials(ctx, conn, b, req)
	case kindNames:
		n := b.Names(time.Unix(0, req.SinceUnixNano))
		return writeLine(conn, reply{Names: &n})
	case kindWhy:
		var r reply
		if why := b.Why(ctx, req.App); why != nil {
			r.Error = why.Error()
		}
		return writeLine(conn, r)
	case kindStop:
		var r reply
		if err := b.Stop(); err != nil {
			r.Error = err.Error()
		}
		return writeLine(conn, r)
	case kindLogs:
		return serveLogs(ctx, cancel, conn, b)
	}
	return writeLine(conn, reply{Error: fmt.Sprintf("cannot serve a request of kind %q", req.Kind)})
}

func serveCall(ctx context.Context, conn *net.UnixConn, b Backend, app, export string) error {
	who, err := peerOf(conn)
	if err != nil {
		return writeLine(conn, reply{Error: err.Error()})
	}
	stream, err := b.Open(ctx, who, app, export)
	if err != nil {
		return writeLine(conn, reply{Error: err.Error()})
	}
	// The app may never end its half.
	defer context.AfterFunc(ctx, func() { link.Abort(stream) })()
	if err := writeLine(conn, reply{}); err != nil {
		stream.Close()
		return err
	}
	return link.Splice(conn, stream)
}

// maxWait bounds how long a question for denials may take.
const maxWait = 10 * time.Second

func serveDenials(ctx context.Context, conn *net.UnixConn, b Backend, req request) error {
	wait := min(time.Duration(req.WaitMillis)*time.Millisecond, maxWait)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	d, err := b.Denials(ctx, req.App, time.Unix(0, req.SinceUnixNano))
	if err != nil {
		return writeLine(conn, reply{Error: err.Error()})
	}
	if err := writeLine(conn, reply{Denials: &d}); err != nil {
		return err
	}
	for _, r := range d.Records {
		if err := writeLine(conn, r); err != nil {
			return err
		}
	}
	return nil
}

func serveLogs(ctx context.Context, cancel context.CancelFunc, conn *net.UnixConn, b Backend) error {
	records := b.Logs(ctx)
	if err := writeLine(conn, reply{}); err != nil {
		return err
	}
	go func() { // the reader goes away: stop following
		conn.Read(make([]byte, 1))
		cancel()
	}()
	for record := range records {
		if err := writeLine(conn, record); err != nil {
			return err
		}
	}
	return nil
}

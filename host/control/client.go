package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berthos/berth/init/link"
)

// Client reaches one running sandbox.
type Client struct {
	path string
}

// answerWithin is how long a sandbox may take to describe itself. One whose
// berth is stopped (Ctrl-Z) accepts connections and never answers.
const answerWithin = 3 * time.Second

// Find returns a client and the description of every sandbox whose runtime
// folder lies in root and whose berth answers, and the ids of those that accept
// a connection and do not answer. A socket that nobody serves any more is
// passed over.
func Find(ctx context.Context, root string) (clients []Client, found []Description, silent []string, err error) {
	sockets, err := filepath.Glob(filepath.Join(escape(root), "*", Socket))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot look for sandboxes in %s: %w", root, err)
	}
	limited, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	descriptions := make([]Description, len(sockets))
	errs := make([]error, len(sockets))
	var all sync.WaitGroup
	for i, name := range sockets {
		all.Go(func() { descriptions[i], errs[i] = Client{path: name}.Describe(limited) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, nil, nil, context.Cause(ctx)
	}
	for i, name := range sockets {
		switch {
		case errs[i] == nil:
			clients, found = append(clients, Client{path: name}), append(found, descriptions[i])
		case errors.Is(errs[i], context.DeadlineExceeded):
			silent = append(silent, filepath.Base(filepath.Dir(name)))
		}
	}
	return clients, found, silent, nil
}

// escape keeps Glob from reading pattern characters in a folder's name.
func escape(dir string) string {
	var b []byte
	for i := range len(dir) {
		if c := dir[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, dir[i])
	}
	return string(b)
}

// Describe asks the sandbox what it is.
func (c Client) Describe(ctx context.Context) (Description, error) {
	conn, r, err := c.ask(ctx, request{Kind: kindDescribe})
	if err != nil {
		return Description{}, err
	}
	conn.Close()
	if r.Description == nil {
		return Description{}, errors.New("cannot describe the sandbox: empty reply")
	}
	return *r.Description, nil
}

// Open connects to an app: sdk/protocol is spoken on what it returns.
func (c Client) Open(ctx context.Context, app, export string) (link.Half, error) {
	conn, _, err := c.ask(ctx, request{Kind: kindCall, App: app, Export: export})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Denials asks what the kernel recorded of an app since a time, and waits at
// most so long for what is under way.
func (c Client) Denials(ctx context.Context, app string, since time.Time, wait time.Duration) (Denials, error) {
	conn, r, err := c.ask(ctx, request{Kind: kindDenials, App: app, SinceUnixNano: since.UnixNano(), WaitMillis: wait.Milliseconds()})
	if err != nil {
		return Denials{}, err
	}
	defer conn.Close()
	if r.Denials == nil {
		return Denials{}, errors.New("cannot ask for denials: empty reply")
	}
	d := *r.Denials
	err = eachLine(conn, func(r link.DenialRecord) error {
		d.Records = append(d.Records, r)
		return nil
	})
	return d, err
}

// Names asks what happened to names of the shares since a time.
func (c Client) Names(ctx context.Context, since time.Time) (Names, error) {
	conn, r, err := c.ask(ctx, request{Kind: kindNames, SinceUnixNano: since.UnixNano()})
	if err != nil {
		return Names{}, err
	}
	conn.Close()
	if r.Names == nil {
		return Names{}, errors.New("cannot ask for names: empty reply")
	}
	return *r.Names, nil
}

// ErrGone means that nobody serves the sandbox any more.
var ErrGone = errors.New("the sandbox ended")

// whyWithin is how long a sandbox may take to say what died; it waits for the
// news itself.
const whyWithin = 8 * time.Second

// Why asks how an app, or its sandbox, died, after a connection to it was lost.
// It returns nil if both live.
func (c Client) Why(ctx context.Context, app string) error {
	limited, cancel := context.WithTimeout(ctx, whyWithin)
	defer cancel()
	conn, _, err := c.ask(limited, request{Kind: kindWhy, App: app})
	var said answered
	switch {
	case err == nil:
		conn.Close()
		return nil
	case errors.As(err, &said) || limited.Err() != nil:
		return err
	}
	return ErrGone
}

// PID is the process that made the socket, as the kernel has it.
func (c Client) PID(ctx context.Context) (int, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return 0, fmt.Errorf("cannot reach the sandbox: %w", err)
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	ctrlErr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(ctrlErr, err); err != nil {
		return 0, fmt.Errorf("cannot ask who serves the sandbox: %w", err)
	}
	return int(cred.Pid), nil
}

// Stop ends a long-lived sandbox and returns when nobody serves it any more.
func (c Client) Stop(ctx context.Context) error {
	logs, _, err := c.ask(ctx, request{Kind: kindLogs}) // ends with the sandbox
	if err != nil {
		return err
	}
	defer logs.Close()
	defer context.AfterFunc(ctx, func() { logs.Close() })()
	conn, _, err := c.ask(ctx, request{Kind: kindStop})
	if err != nil {
		return err
	}
	conn.Close()
	_, _ = io.Copy(io.Discard, logs)
	return ctx.Err()
}

// answered is an error that the sandbox answered with.
type answered string

func (a answered) Error() string { return string(a) }

// Logs calls yield with every record from now on, until the sandbox ends (nil),
// ctx ends, or yield returns an error.
func (c Client) Logs(ctx context.Context, yield func(link.LogRecord) error) error {
	conn, _, err := c.ask(ctx, request{Kind: kindLogs})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	err = eachLine(conn, yield)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// eachLine calls yield with every JSON line of r.
func eachLine[T any](r io.Reader, yield func(T) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var record T
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return fmt.Errorf("cannot read a record: %w", err)
		}
		if err := yield(record); err != nil {
			return err
		}
	}
	return lines.Err()
}

// ask connects, sends req and returns the connection behind the reply.
func (c Client) ask(ctx context.Context, req request) (*net.UnixConn, reply, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, reply{}, fmt.Errorf("cannot reach the sandbox: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var r reply
	err = writeLine(conn, req)
	if err == nil {
		err = readLine(conn, &r)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot reach the sandbox: %w", context.Cause(ctx))
	} else if err == nil && r.Error != "" {
		err = answered(r.Error)
	} else if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		err = fmt.Errorf("cannot reach the sandbox at %s: it closed the connection", c.path)
	}
	if err != nil {
		conn.Close()
		return nil, reply{}, err
	}
	return conn, r, nil
}

func (c Client) dial(ctx context.Context) (*net.UnixConn, error) {
	addr, release, err := address(c.path)
	if err != nil {
		return nil, err
	}
	defer release()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", addr.Name)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

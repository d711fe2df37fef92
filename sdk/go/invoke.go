package berth

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthos/berth/sdk/protocol"
	"golang.org/x/sys/unix"
)

// Invoke calls an export of another app of the sandbox and decodes what it
// returns into output, which may be nil. The manifest must have the capability
// "app:invoke:<app>" or "app:invoke:<app>.<export>". An error of the called app
// is a *protocol.Error; one with protocol.CodeDenied says that this app may not
// make the call.
func Invoke(ctx context.Context, app, export string, input, output any) error {
	raw, err := encode(input)
	if err != nil {
		return fmt.Errorf("cannot call %s of app %s: %w", export, app, err)
	}
	conn, err := connect(ctx, app, export)
	if err != nil {
		return fmt.Errorf("cannot call %s of app %s: %w", export, app, err)
	}
	out, err := protocol.Call(ctx, conn, protocol.Request{ID: rand.Text(), Export: export, Input: raw}, nil)
	if err != nil {
		return fmt.Errorf("cannot call %s of app %s: %w", export, app, failedIn(app, err))
	}
	if output == nil {
		return nil
	}
	if err := json.Unmarshal(out, output); err != nil {
		return fmt.Errorf("cannot call %s of app %s: cannot read its result: %w", export, app, err)
	}
	return nil
}

// failedIn notes whose error it is: what the called app was refused is judged by
// that app's policy. That the call itself was denied is this app's.
func failedIn(app string, err error) error {
	var said *protocol.Error
	if !errors.As(err, &said) || said.App != "" || said.Code == protocol.CodeDenied && strings.HasPrefix(said.Path, app+".") {
		return err
	}
	e := *said
	e.App = app
	return &e
}

// inheritedSockets lead to the apps that this process may call. They stay open
// as long as the process lives.
var inheritedSockets struct {
	once  sync.Once
	byApp map[string]*net.UnixConn
	err   error
}

func callees() (map[string]*net.UnixConn, error) {
	s := &inheritedSockets
	s.once.Do(func() { s.byApp, s.err = inheritedCallees(os.Getenv(protocol.EnvInvoke)) })
	return s.byApp, s.err
}

func inheritedCallees(list string) (map[string]*net.UnixConn, error) {
	found := map[string]*net.UnixConn{}
	for entry := range strings.SplitSeq(list, ",") {
		if entry == "" {
			continue
		}
		app, number, _ := strings.Cut(entry, "=")
		fd, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s has %.40q, which is not an app and its descriptor", protocol.EnvInvoke, entry)
		}
		// FileConn's duplicate is close-on-exec; the inherited one must not reach
		// programs that the app starts.
		f := os.NewFile(uintptr(fd), "socket to app "+app)
		conn, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("descriptor %d of %s: %w", fd, protocol.EnvInvoke, err)
		}
		unixConn, ok := conn.(*net.UnixConn)
		if !ok {
			return nil, fmt.Errorf("descriptor %d of %s is not a unix socket", fd, protocol.EnvInvoke)
		}
		found[app] = unixConn
	}
	return found, nil
}

// connect makes a pair of sockets and hands one of them to Berth, which connects
// it to the app.
func connect(ctx context.Context, app, export string) (net.Conn, error) {
	all, err := callees()
	if err != nil {
		return nil, err
	}
	to := all[app]
	if to == nil {
		may := "none may be called"
		if len(all) > 0 {
			may = "those that may be called are " + strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		}
		return nil, &protocol.Error{Code: protocol.CodeDenied, Path: app + "." + export, Message: fmt.Sprintf("no capability app:invoke:%s; %s", app, may)}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make its socket: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "their end")
	defer theirs.Close()
	ours := os.NewFile(uintptr(pair[0]), "our end")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	if err := handOver(ctx, to, pair[1]); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// handing lets one goroutine at a time use a deadline of a callee's socket.
var handing sync.Mutex

func handOver(ctx context.Context, to *net.UnixConn, fd int) error {
	handing.Lock()
	defer handing.Unlock()
	if err := to.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { to.SetWriteDeadline(time.Unix(1, 0)) })
	_, _, err := to.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
	if !stop() && err != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot reach Berth: %w", err)
	}
	return nil
}

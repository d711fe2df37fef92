package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

// Limits of the calls from app to app that one process makes.
const (
	maxCallees  = 64                     // apps that it may call: a descriptor each
	maxInvokes  = 16                     // its calls that are open
	invokeWait  = 10 * time.Second       // for its first line, and for the called app to take it
	refusalRest = 100 * time.Millisecond // before the next call in place of a refused one
)

// invokes are the sockets over which a process of an app hands PID 1 its ends of
// connections to other apps, one for each of them. Who calls is known by the
// socket, and whom by it too.
type invokes struct {
	l      *launcher
	log    *slog.Logger // what the process is told, for people
	conns  []*net.UnixConn
	theirs []*os.File
	open   chan struct{} // one for each open call
	ctx    context.Context
	cancel context.CancelFunc
}

// callees are the apps that the process may call, in the order of its sockets.
func (l *launcher) callees() (apps []string) {
	for _, i := range l.rights.Invoke {
		apps = append(apps, i.App)
	}
	return apps
}

func (l *launcher) newInvokes() (*invokes, error) {
	v := &invokes{l: l, open: make(chan struct{}, maxInvokes)}
	v.log = slog.New(slog.NewTextHandler(l.p.logs.writer(l.name, "init"), &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	v.ctx, v.cancel = context.WithCancel(context.Background())
	for _, app := range l.callees() {
		if err := v.add(); err != nil {
			v.close()
			v.closeTheirs()
			return nil, fmt.Errorf("cannot make the socket to app %q: %w", app, err)
		}
	}
	return v, nil
}

func (v *invokes) add() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	v.theirs = append(v.theirs, os.NewFile(uintptr(pair[1]), "calls"))
	conn, err := fileConn(pair[0])
	if err != nil {
		return err
	}
	v.conns = append(v.conns, conn)
	return nil
}

// fileConn takes over a unix socket.
func fileConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func (v *invokes) closeTheirs() {
	for _, f := range v.theirs {
		_ = f.Close()
	}
}

// close ends the sockets and every open call.
func (v *invokes) close() {
	v.cancel()
	for _, conn := range v.conns {
		_ = conn.Close()
	}
}

func (v *invokes) serve() {
	for n, app := range v.l.callees() {
		v.l.p.spawn("calls of app "+v.l.name, func() { v.receiveAll(v.conns[n], app) })
	}
}

// receiveAll takes connections to one app until the process ends, or hands over
// something else: then it makes no more calls of this app.
func (v *invokes) receiveAll(from *net.UnixConn, callee string) {
	defer from.Close()
	for {
		conn, err := receiveConn(from)
		if err != nil {
			if errors.Is(err, errNotAConn) {
				v.log.Warn("this process may call no more", "app", callee, "error", err)
			}
			return
		}
		select {
		case v.open <- struct{}{}:
		default:
			conn.refuse(&protocol.Error{Code: protocol.CodeFailed, Message: fmt.Sprintf("%d calls of other apps are open, which is the limit", maxInvokes)})
			v.rest()
			continue
		}
		v.l.p.spawn("call of app "+callee, func() {
			defer func() { <-v.open }()
			v.call(conn, callee)
		})
	}
}

// rest keeps a process that is refused from taking PID 1's time by asking on.
func (v *invokes) rest() {
	select {
	case <-time.After(refusalRest):
	case <-v.ctx.Done():
	}
}

// call connects one call with the process that serves it.
func (v *invokes) call(conn *handedConn, callee string) {
	defer context.AfterFunc(v.ctx, func() { _ = conn.Close() })()
	half, done, refusal := v.begin(conn, callee)
	if refusal != nil {
		conn.refuse(refusal)
		v.rest()
		return
	}
	defer done()
	defer context.AfterFunc(v.ctx, func() { _ = half.Close() })()
	_ = link.Splice(conn, half)
}

// begin reads the first line, decides about it and passes it on.
func (v *invokes) begin(conn *handedConn, callee string) (link.Half, func(), *protocol.Error) {
	_ = conn.SetReadDeadline(time.Now().Add(invokeWait))
	lines := protocol.NewInvokeReader(waiting{conn})
	q, err := lines.Request()
	if err != nil {
		return nil, nil, &protocol.Error{Code: protocol.CodeInvalidInput, Message: err.Error()}
	}
	_ = conn.SetReadDeadline(time.Time{})
	conn.rest = lines.Rest()
	name, refusal := v.route(&q, callee)
	if refusal != nil {
		v.log.Warn("refused a call of another app", "app", callee, "export", q.Export, "error", refusal.Message)
		return nil, nil, refusal
	}
	half, done, err := v.l.p.apps.connect(v.ctx, name)
	if err != nil {
		return nil, nil, &protocol.Error{Code: protocol.CodeFailed, Message: err.Error()}
	}
	if d, ok := half.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Now().Add(invokeWait))
		defer func() { _ = d.SetWriteDeadline(time.Time{}) }()
	}
	if err := protocol.NewWriter(half).Request(q); err != nil {
		_ = half.Close()
		done()
		return nil, nil, &protocol.Error{Code: protocol.CodeFailed, Message: fmt.Sprintf("cannot call app %q: %v", callee, err)}
	}
	return half, done, nil
}

// route decides whether the process may make a call, says in it who calls, and
// names the process that serves it.
func (v *invokes) route(q *protocol.Request, callee string) (name string, refusal *protocol.Error) {
	invalid := func(text string) (string, *protocol.Error) {
		return "", &protocol.Error{Code: protocol.CodeInvalidInput, Message: text}
	}
	switch {
	case q.Type != protocol.TypeCall && q.Type != protocol.TypeStream:
		return invalid(fmt.Sprintf("a connection to another app cannot begin with %s", q.Type))
	case q.Export == "":
		return invalid("a stream of a call of another app names the call's export")
	case !v.l.rights.Invokes(callee, q.Export):
		return "", v.denied(callee, q.Export)
	}
	called, runs := v.l.p.apps.policyOf(callee)
	if !runs {
		return "", &protocol.Error{Code: protocol.CodeFailed, Message: fmt.Sprintf("cannot call app %q: it does not run in this sandbox", callee)}
	}
	worker, served := called.Serves(q.Export)
	if !served {
		return "", &protocol.Error{Code: protocol.CodeUnknownExport, Message: fmt.Sprintf("app %q has no export %q", callee, q.Export)}
	}
	// An app must not pair its stream with the call of another one, nor of the
	// host: whatever it names its calls, nobody else's are named so.
	q.ID = filepath.Base(v.l.dir) + ":" + q.ID
	if len(q.ID) > protocol.MaxID {
		return invalid("the ID of a call of another app is too long")
	}
	q.Caller = ""
	if q.Type == protocol.TypeCall {
		q.Caller = v.l.policy.App
	}
	return policy.Instance(callee, worker), nil
}

func (v *invokes) denied(callee, export string) *protocol.Error {
	where := "its manifest"
	if v.l.start.Worker != policy.Main {
		where = "the capabilities of export " + v.l.start.Worker
	}
	return &protocol.Error{Code: protocol.CodeDenied, Path: callee + "." + export, Message: fmt.Sprintf(
		"app %q may not call %s of app %q; the owner of this sandbox may add \"app:invoke:%s.%s\" to %s and approve it; retrying will not help",
		v.l.policy.App, export, callee, callee, export, where)}
}

// errNotAConn is wrapped when a process hands over what is no connection.
var errNotAConn = errors.New("it handed over something else than one connected unix stream socket")

// receiveConn takes one connection: one byte and one descriptor. There is room
// for no more than one, so the kernel keeps nothing else for this process.
func receiveConn(from *net.UnixConn) (*handedConn, error) {
	var b [2]byte
	oob := make([]byte, unix.CmsgLen(4))
	n, oobn, flags, _, err := from.ReadMsgUnix(b[:], oob)
	if err != nil {
		return nil, err
	}
	if n == 0 && oobn == 0 {
		return nil, io.EOF
	}
	fds := descriptorsIn(oob[:oobn])
	if n == 1 && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 && len(fds) == 1 && isStream(fds[0]) {
		return handed(fds[0])
	}
	for _, fd := range fds {
		// To close a file of a share can take a request that goes through this
		// process. It happens once: the socket is closed too.
		_ = helped(func() error { return unix.Close(fd) })
	}
	return nil, errNotAConn
}

func descriptorsIn(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

// isStream asks no more of a descriptor than whether it is a unix stream socket
// that does not listen. What it is else may not like to be asked.
func isStream(fd int) bool {
	for _, want := range []struct{ option, value int }{
		{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 0},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil || got != want.value {
			return false
		}
	}
	return true
}

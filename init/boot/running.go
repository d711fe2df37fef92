package boot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

// How an instance is stopped: asked by the protocol's shutdown message, then
// told by SIGTERM, then ended by SIGKILL, with this time between them. When the
// host is gone nobody waits for what an app might still do.
const (
	patience   = time.Second
	impatience = 200 * time.Millisecond
)

// killedStatus is how a process ends that the kernel killed.
const killedStatus = "signal: killed"

const (
	// drainFor is how long the pipes of a process that is gone may take. All
	// its descendants are gone with it, so this is for what is in the pipes.
	drainFor = time.Second
)

// maxAnnounce bounds an announcement, in bytes; it must fit a control message.
const maxAnnounce = link.MaxControl / 2

// running is an instance: the enforcer's process, which becomes the app.
type running struct {
	l       *launcher
	child   *process
	reports *reports
	goes    *os.File
	group   *group
	invokes *invokes // connections to the apps that it may call
	errors  *lineWriter
	drained chan struct{} // what it printed is in the log
	exited  chan struct{}
	status  string // once exited

	mu    sync.Mutex // guards what follows
	hello net.Conn
}

// wait ends with the process and leaves nothing of it.
func (r *running) wait() {
	<-r.child.exited
	select {
	case <-r.drained:
	case <-time.After(drainFor):
	}
	r.status = describeApp(r.child.status)
	if hit := r.group.hits().Text(r.l.policy.Limits, r.status == killedStatus); hit != "" {
		r.status += " (" + hit + ")"
	}
	r.invokes.close()
	_ = r.goes.Close()
	_ = r.reports.file.Close()
	r.mu.Lock()
	if r.hello != nil {
		_ = r.hello.Close()
	}
	r.mu.Unlock()
	if err := r.group.leave(); err != nil {
		r.l.p.log.Warn("cannot remove cgroup", "app", r.l.name, "error", err)
	}
	if r.l.p.records != nil {
		r.l.p.records.ended(r.child.pid)
	}
	close(r.exited)
}

func (r *running) Exited() <-chan struct{} { return r.exited }
func (r *running) Status() string          { return r.status }
func (r *running) Tail() string            { return strings.Join(r.errors.last(), "\n") }

func (r *running) Kill() {
	r.child.signal(syscall.SIGKILL)
	<-r.exited
}

// Stop ends the app in order. The enforcer passes SIGTERM on.
func (r *running) Stop() {
	wait := r.l.p.apps.patience()
	r.mu.Lock()
	if r.hello != nil {
		_ = r.hello.SetWriteDeadline(time.Now().Add(wait))
		_, _ = r.hello.Write([]byte(`{"type":"` + protocol.TypeShutdown + `"}` + "\n"))
	}
	r.mu.Unlock()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-r.exited:
			return
		case <-time.After(wait):
			r.child.signal(sig)
		}
	}
	<-r.exited
}

// Enforced waits for the enforcer's last report before it waits for its Go.
func (r *running) Enforced(ctx context.Context) (link.Enforced, error) {
	defer context.AfterFunc(ctx, r.reports.interrupt)()
	for {
		rep, err := r.reports.next()
		switch {
		case err == io.EOF:
			return link.Enforced{}, errors.New("the enforcer ended before it was done")
		case err != nil:
			return link.Enforced{}, fmt.Errorf("cannot read the enforcer's report: %w", err)
		case rep.Failed != nil:
			return link.Enforced{}, failed(rep.Failed.Step, errors.New(rep.Failed.Reason))
		case rep.Enforced != nil:
			e := rep.Enforced
			if err := r.recorded(ctx); err != nil {
				return link.Enforced{}, failed(sandbox.StepRecords, err)
			}
			if r.l.p.records != nil {
				e.Steps = append(e.Steps, sandbox.StepRecords)
			}
			return link.Enforced{App: r.l.name, PolicySHA256: e.PolicySHA256, ABI: e.ABI, Steps: e.Steps, Weaker: e.Weaker}, nil
		}
	}
}

// recorded makes sure, where the kernel's records are read, that they tell of
// this run: an app whose denials leave no trace does not start.
func (r *running) recorded(ctx context.Context) error {
	if r.l.p.records == nil {
		return nil
	}
	required := true
	for _, step := range r.l.start.Ablate {
		required = required && step != sandbox.StepLandlock && step != sandbox.StepCanaries
	}
	return r.l.p.records.confirm(ctx, r.child.pid, required)
}

// Release lets the enforcer execute the app.
func (r *running) Release() error {
	if _, err := r.goes.Write([]byte{'g'}); err != nil {
		return fmt.Errorf("cannot let it go: %w", err)
	}
	return nil
}

// Announced waits until the app was executed and says hello to it.
func (r *running) Announced(ctx context.Context) (json.RawMessage, error) {
	defer context.AfterFunc(ctx, r.reports.interrupt)()
	if rep, err := r.reports.next(); err == nil && rep.Failed != nil {
		return nil, failed(rep.Failed.Step, errors.New(rep.Failed.Reason))
	}
	conn, err := r.l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to it: %w", err)
	}
	r.mu.Lock()
	r.hello = conn
	r.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	line, rest, err := hello(conn)
	if err != nil {
		return nil, err
	}
	r.l.p.spawn("hello", func() { _, _ = io.Copy(io.Discard, rest) })
	return line, nil
}

// hello asks for the announcement and returns it as it came, once it is one.
func hello(conn net.Conn) (json.RawMessage, io.Reader, error) {
	ask, err := json.Marshal(protocol.Request{Type: protocol.TypeHello, Protocol: protocol.Version})
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.Write(append(ask, '\n')); err != nil {
		return nil, nil, fmt.Errorf("cannot say hello to it: %w", err)
	}
	rest := bufio.NewReaderSize(conn, 4<<10)
	line, err := boundedLine(rest, maxAnnounce)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil, nil, errors.New("it ended, or closed the connection, before it announced its exports")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read its announcement: %w", err)
	}
	if _, err := protocol.ParseAnnounce(line); err != nil {
		return nil, nil, err
	}
	return json.RawMessage(bytes.TrimSpace(line)), rest, nil
}

// boundedLine reads one line of at most limit bytes.
func boundedLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("line of more than %d bytes", limit)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// maxReport bounds one report of the enforcer, in bytes.
const maxReport = 64 << 10

// reports reads the enforcer's reports.
type reports struct {
	file *os.File
	r    *bufio.Reader
}

func newReports(f *os.File) *reports { return &reports{f, bufio.NewReader(f)} }

// interrupt makes next return, now and later.
func (r *reports) interrupt() { _ = r.file.SetReadDeadline(time.Unix(1, 0)) }

func (r *reports) next() (sandbox.Report, error) {
	var rep sandbox.Report
	line, err := boundedLine(r.r, maxReport)
	if err != nil {
		return rep, err
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return rep, dec.Decode(&rep)
}

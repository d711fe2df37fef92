package boot

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

// deadline is an upper bound that a hanging test runs into, never a timing.
const deadline = 60 * time.Second

// hostEnd is the host's side of a link, for tests.
type hostEnd struct {
	t       *testing.T
	session *link.Session
	control *link.ControlConn
	steps   []link.Step
	booted  *link.Booted
	serve   func(*link.Stream)

	mu   sync.Mutex // guards what follows
	logs []link.LogRecord
}

// meet does the handshake on conn; serve serves shares, if there are any.
func meet(t *testing.T, conn link.Conn, serve func(*link.Stream)) *hostEnd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	session, err := link.Host(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	h := &hostEnd{t: t, session: session, serve: serve}
	watchdog := time.AfterFunc(deadline, func() { _ = session.Close() })
	t.Cleanup(func() {
		watchdog.Stop()
		_ = session.Close()
	})
	go h.accept()
	return h
}

// accept collects the log.
func (h *hostEnd) accept() {
	for {
		header, stream, err := h.session.Accept()
		if err != nil {
			return
		}
		if header.Type == link.StreamShare && h.serve != nil {
			go h.serve(stream)
			continue
		}
		if header.Type != link.StreamLog {
			stream.Reset()
			continue
		}
		go func() {
			for {
				rec, err := stream.ReceiveLog()
				if err != nil {
					return
				}
				h.mu.Lock()
				h.logs = append(h.logs, rec)
				h.mu.Unlock()
			}
		}()
	}
}

// logged says whether a line with this text has come.
func (h *hostEnd) logged(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.logs {
		if strings.Contains(r.Line, text) {
			return true
		}
	}
	return false
}

func (h *hostEnd) send(m link.Control) {
	h.t.Helper()
	if err := h.control.Send(m); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hostEnd) receive() link.Control {
	h.t.Helper()
	m, err := h.control.Receive()
	if err != nil {
		h.t.Fatalf("%v (session: %v)", err, h.session.Err())
	}
	return m
}

// boot sends the configuration and waits for Booted.
func (h *hostEnd) boot(config link.Boot) {
	h.t.Helper()
	stream, err := h.session.OpenStream(link.StreamHeader{Type: link.StreamControl})
	if err != nil {
		h.t.Fatal(err)
	}
	h.control = link.NewControl(stream)
	config.UnixNano = time.Now().UnixNano()
	h.send(link.Control{Boot: &config})
	for {
		m := h.receive()
		switch {
		case m.Step != nil:
			h.steps = append(h.steps, *m.Step)
		case m.Booted != nil:
			h.booted = m.Booted
			return
		default:
			h.t.Fatalf("unexpected %s: %+v", m.Name(), m.Failed)
		}
	}
}

// request returns a Start for the stub, whose behaviour is in args.
func request(t *testing.T, app string, args ...string) link.Start {
	t.Helper()
	raw, err := policy.Policy{
		Schema: policy.Schema, App: app, Version: "1", Code: "sha256:" + strings.Repeat("0", 64),
		Argv:   append([]string{"/app/run"}, args...),
		Limits: policy.Limits{CPUMilli: 1000, MemoryMB: 64, Pids: 64},
		Rights: policy.Rights{Class: "base"}, Exports: []string{"echo"},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return link.Start{App: app, Policy: raw, CodeDir: "/apps/" + app, Shares: []string{}}
}

// start starts an app and sees it ready.
func (h *hostEnd) start(app string, args ...string) {
	h.t.Helper()
	h.startAs(request(h.t, app, args...))
}

func (h *hostEnd) startAs(s link.Start) {
	h.t.Helper()
	h.send(link.Control{Start: &s})
	h.ready(s)
}

// ready lets an app go that is being started.
func (h *hostEnd) ready(s link.Start) {
	h.t.Helper()
	m := h.receive()
	if m.Enforced == nil || m.Enforced.PolicySHA256 != policy.Digest(s.Policy) {
		h.t.Fatalf("not enforced: %s %+v", m.Name(), m.Failed)
	}
	h.send(link.Control{Go: &link.Go{App: s.App}})
	m = h.receive()
	if m.Ready == nil || !strings.Contains(string(m.Ready.Announce), `"echo"`) {
		h.t.Fatalf("not ready: %s %+v", m.Name(), m.Failed)
	}
}

// openCall opens a stream to an app.
func (h *hostEnd) openCall(app string) (*link.Stream, error) {
	h.t.Helper()
	stream, err := h.session.OpenStream(link.StreamHeader{Type: link.StreamCall, App: app})
	if err != nil {
		return nil, err
	}
	if err := stream.ReceiveReply(); err != nil {
		_ = stream.Close()
		return nil, err
	}
	return stream, nil
}

// call calls an export and returns its output, or "error: " and the reason.
func (h *hostEnd) call(app, export, input string) string {
	h.t.Helper()
	stream, err := h.openCall(app)
	if err != nil {
		return "error: " + err.Error()
	}
	defer stream.Close()
	line, err := json.Marshal(protocol.Request{Type: protocol.TypeCall, ID: "1", Export: export, Input: json.RawMessage(input)})
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := stream.Write(append(line, '\n')); err != nil {
		return "error: " + err.Error()
	}
	answer, err := bufio.NewReader(stream).ReadBytes('\n')
	if err != nil {
		return "error: " + err.Error()
	}
	var m protocol.Message
	if err := json.Unmarshal(answer, &m); err != nil {
		h.t.Fatal(err)
	}
	if m.Error != nil {
		return "error: " + m.Error.Message
	}
	return string(m.Output)
}

// shutdown ends the sandbox in order. The guest may be gone before the message
// counts as sent.
func (h *hostEnd) shutdown() {
	h.t.Helper()
	_ = h.control.Send(link.Control{Shutdown: &link.Shutdown{}})
	for {
		m := h.receive()
		if m.Down != nil {
			if m.Down.Reason != "" {
				h.t.Errorf("down: %s", m.Down.Reason)
			}
			return
		}
		if m.Exited == nil {
			h.t.Fatal(fmt.Errorf("unexpected %s", m.Name()))
		}
	}
}

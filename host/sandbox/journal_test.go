package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

// paper is a journal in memory that can run out.
type paper struct {
	mu   sync.Mutex
	list []audit.Record
	full bool
}

var errPaper = errors.New("no paper is left")

func (p *paper) Append(r audit.Record) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return 0, errPaper
	}
	p.list = append(p.list, r)
	return int64(len(p.list) - 1), nil
}

func (p *paper) AppendSync(r audit.Record) (int64, error) { return p.Append(r) }

func (p *paper) setFull(full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = full
}

// of are the records of a kind so far.
func (p *paper) of(kind audit.Kind) (list []audit.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.list {
		if r.Kind == kind {
			list = append(list, r)
		}
	}
	return list
}

// await waits for records that may come after what they are about.
func (p *paper) await(t *testing.T, kind audit.Kind, ok func(audit.Record) bool) audit.Record {
	t.Helper()
	for range 100 {
		for _, r := range p.of(kind) {
			if ok(r) {
				return r
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("no such %s among %+v", kind, p.of(kind))
	return audit.Record{}
}

// Everything that is asked, decided, denied, started and ended is in the trail.
func TestJournal(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		p := &paper{}
		r := w.mustStart(t, func(o *sandbox.Options) { o.Journal = p })
		begin := p.of(audit.KindStart)
		if len(begin) != 1 || begin[0].App != "probe" || begin[0].Run != r.ID() || begin[0].Bound.Policy != r.Apps()[0].Enforced.PolicySHA256 || begin[0].Bound.Image != w.image.Digest {
			t.Errorf("start: %+v", begin)
		}
		if _, err := r.call("whoami", obj{}); err != nil {
			t.Fatal(err)
		}
		calls, results := p.of(audit.KindCall), p.of(audit.KindResult)
		if len(calls) != 1 || calls[0].Export != "whoami" || calls[0].Input.Bytes != 2 || calls[0].Input.SHA256 != sha256.Sum256([]byte("{}")) {
			t.Errorf("call: %+v", calls)
		}
		if len(results) != 1 || results[0].Decision != audit.Allowed || *results[0].Call != 1 || results[0].Output.Bytes == 0 {
			t.Errorf("result: %+v", results)
		}
		if _, err := r.call("write", obj{"path": "/tmp/x", "content": "x"}); err == nil {
			t.Error("it could write")
		}
		p.await(t, audit.KindResult, func(r audit.Record) bool { return r.Decision == audit.Denied && r.Export == "write" })
		if _, err := r.call("read", obj{"path": "/workspace/missing"}); err == nil {
			t.Error("it could read")
		}
		p.await(t, audit.KindResult, func(r audit.Record) bool { return r.Decision == audit.Failed && r.Export == "read" })
		d, err := r.Denials(t.Context(), "probe", time.Time{})
		must(t, err)
		if d.Kept {
			e := p.await(t, audit.KindDenial, func(r audit.Record) bool { return r.Evidence.Object == "/tmp" })
			if e.Evidence.Blockers != "fs.make_reg" || e.Capability != "filesystem:write:/tmp" || e.App != "probe" {
				t.Errorf("denial: %+v %+v", e, e.Evidence)
			}
		}
		// One who is named, with a raw stream, and one who goes away.
		var back bytes.Buffer
		_, err = r.Call(t.Context(), sandbox.CallRequest{App: "probe", Export: "echo", Input: []byte("{}"), Upload: strings.NewReader("bytes"), Download: &back, Actor: sandbox.Actor{Name: "somebody", By: "a test"}})
		must(t, err)
		p.await(t, audit.KindCall, func(r audit.Record) bool { return r.Export == "echo" && r.Actor == "somebody" && r.ActorBy == "a test" })
		p.await(t, audit.KindResult, func(r audit.Record) bool { return r.Export == "echo" && r.Decision == audit.Allowed })
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := r.Call(ctx, sandbox.CallRequest{App: "probe", Export: "wait", Input: []byte("{}")}); err == nil {
			t.Error("it did not wait")
		}
		p.await(t, audit.KindResult, func(r audit.Record) bool { return r.Export == "wait" && r.Decision == audit.Unavailable })
		_, _ = r.call("die", obj{"code": 1})
		p.await(t, audit.KindStop, func(r audit.Record) bool { return r.App == "probe" })
		must(t, r.Close(t.Context()))
		p.await(t, audit.KindStop, func(r audit.Record) bool { return r.App == "" })
	})
}

// A call that cannot be recorded does not reach the app; an answer that cannot
// be recorded does not reach the caller; and what is missing is told.
func TestJournalIsFull(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		if w.machine(nil).Name() != machine.Native {
			return // nothing of it depends on the machine
		}
		p := &paper{}
		r := w.mustStart(t, func(o *sandbox.Options) { o.Journal = p })
		p.setFull(true)
		if _, err := r.call("write", obj{"path": "/workspace/x", "content": "x"}); !errors.Is(err, errPaper) {
			t.Errorf("err = %v", err)
		}
		conn, err := r.Open(t.Context(), sandbox.Actor{}, "probe", "write")
		must(t, err)
		line, err := protocol.EncodeRequest(protocol.Request{Type: protocol.TypeCall, ID: "1", Export: "write", Input: []byte(`{"path":"/workspace/x","content":"x"}`)})
		must(t, err)
		if _, err := conn.Write(line); !errors.Is(err, errPaper) {
			t.Errorf("err = %v", err)
		}
		conn.Reset()
		p.setFull(false)
		if text, err := r.call("read", obj{"path": "/workspace/x"}); err == nil {
			t.Errorf("a call that was not recorded was carried out: %q", text)
		}
		conn, err = r.Open(t.Context(), sandbox.Actor{}, "probe", "whoami")
		must(t, err)
		line, err = protocol.EncodeRequest(protocol.Request{Type: protocol.TypeCall, ID: "2", Export: "whoami", Input: []byte("{}")})
		must(t, err)
		_, err = conn.Write(line)
		must(t, err)
		p.setFull(true)
		if out, err := io.ReadAll(conn); !errors.Is(err, errPaper) || bytes.Contains(out, []byte("result")) {
			t.Errorf("the caller has %q, %v", out, err)
		}
		conn.Reset()
		p.setFull(false)
		if _, err := r.call("whoami", obj{}); err != nil {
			t.Error(err)
		}
		if lost := p.await(t, audit.KindLoss, func(audit.Record) bool { return true }); lost.Count != 1 {
			t.Errorf("lost: %+v", lost)
		}
		// Nor does an app start whose start cannot be recorded.
		must(t, r.Close(t.Context()))
		p = &paper{full: true}
		if _, err := w.start(t, func(o *sandbox.Options) { o.Journal = p }); err == nil || !strings.Contains(err.Error(), errPaper.Error()) {
			t.Errorf("err = %v", err)
		}
	})
}

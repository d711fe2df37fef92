package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"slices"
	"sync"

	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/sdk/protocol"
)

// callRecord is what the trail says of one call: a record before the app is
// asked and one when it has answered. It belongs to one connection.
type callRecord struct {
	j     *journal
	app   string // the process
	actor Actor

	mu           sync.Mutex // guards what follows
	begun, ended bool
	seq          int64
	export       string

	// Of the line that is being read.
	sum  hash.Hash
	size int64
	head []byte
}

// maxErrorHead is how much of an answer's line is looked at, in bytes.
const maxErrorHead = 64 << 10

// begin records a call. An error means that it must not be made.
func (c *callRecord) begin(q protocol.Request) error {
	if c == nil || q.Type == protocol.TypeStream {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return nil
	}
	seq, err := c.j.ask(audit.Record{
		Kind: audit.KindCall, App: c.app, Export: q.Export, Actor: c.actor.Name, ActorBy: c.actor.By,
		Input: &audit.Payload{Bytes: int64(len(q.Input)), SHA256: sha256.Sum256(q.Input)},
	})
	if err != nil {
		return err
	}
	c.begun, c.seq, c.export = true, seq, q.Export
	return nil
}

// read takes what the app says next, and records the answer before the caller
// has it.
func (c *callRecord) read(p []byte) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.begun && !c.ended && len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part, p = p[:end], p[end+1:]
		} else {
			p = nil
		}
		if c.sum == nil {
			c.sum = sha256.New()
		}
		c.sum.Write(part)
		c.size += int64(len(part))
		c.head = append(c.head, part[:min(len(part), maxErrorHead-len(c.head))]...)
		if end < 0 {
			return nil
		}
		if isLast(c.head) {
			return c.answered()
		}
		c.sum.Reset()
		c.size, c.head = 0, c.head[:0]
	}
	return nil
}

func isLast(head []byte) bool {
	return slices.ContainsFunc(lastLines[:], func(last string) bool { return bytes.HasPrefix(head, []byte(last)) })
}

// answered records the line that ends the call.
func (c *callRecord) answered() error {
	out := &audit.Payload{Bytes: c.size}
	c.sum.Sum(out.SHA256[:0])
	r := audit.Record{Decision: audit.Allowed, Output: out}
	var m struct{ Error *protocol.Error }
	if !bytes.HasPrefix(c.head, []byte(lastLines[0])) {
		r.Decision = audit.Failed
		if json.Unmarshal(c.head, &m) == nil && m.Error != nil {
			r.Reason = m.Error.Error()
			if refused(m.Error) {
				r.Decision = audit.Denied
			}
		}
	}
	return c.end(r)
}

// refused says whether an app reports that the sandbox refused it something.
func refused(e *protocol.Error) bool {
	return e.Code == protocol.CodeDenied || e.Code == protocol.CodeSystem && slices.Contains([]string{"EACCES", "EPERM", "EROFS"}, e.Errno)
}

// gone records the end of a connection without an answer.
func (c *callRecord) gone(why string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun || c.ended {
		return
	}
	_ = c.end(audit.Record{Decision: audit.Unavailable, Reason: why}) // counted as lost
}

func (c *callRecord) end(r audit.Record) error {
	c.ended = true
	r.Kind, r.App, r.Export, r.Call = audit.KindResult, c.app, c.export, &c.seq
	return c.j.note(r)
}

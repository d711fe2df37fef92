package audit

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"
)

// Proof shows that a record is in the trail of a signed head, without the rest.
type Proof struct {
	Record     string           `json:"record"`     // its line, as text
	Checkpoint string           `json:"checkpoint"` // the signed head
	Hashes     tlog.RecordProof `json:"hashes"`     // base64, from the leaf to the root (RFC 6962)
}

// Prove makes the proof of a record for the newest head.
func (t *Trail) Prove(seq int64) (Proof, error) {
	c, ok, err := t.Head()
	if err != nil {
		return Proof{}, err
	}
	if !ok || seq < 0 || seq >= c.Tree.N {
		return Proof{}, fmt.Errorf("cannot prove record %d: %d records are signed", seq, c.Tree.N)
	}
	line, err := t.line(seq)
	if err != nil {
		return Proof{}, fmt.Errorf("cannot prove record %d: %w", seq, err)
	}
	f, err := t.d.open(hashFile, unix.O_RDONLY)
	if err != nil {
		return Proof{}, err
	}
	defer f.Close()
	hashes, err := tlog.ProveRecord(c.Tree.N, seq, stored(f))
	if err != nil {
		return Proof{}, fmt.Errorf("cannot prove record %d: %w", seq, err)
	}
	p := Proof{Record: string(line), Checkpoint: string(c.Text), Hashes: hashes}
	if _, err := p.Verify(t.v); err != nil {
		return Proof{}, fmt.Errorf("cannot prove record %d, the trail was changed: %w", seq, err)
	}
	return p, nil
}

// line reads the line of one record.
func (t *Trail) line(seq int64) (found []byte, err error) {
	all, err := t.d.segments()
	if err != nil {
		return nil, err
	}
	at := -1
	for i, first := range all {
		if first <= seq {
			at = i
		}
	}
	if at < 0 {
		return nil, errors.New("it was pruned")
	}
	f, err := t.d.open(segmentName(all[at]), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := newLines(f)
	for n := all[at]; ; n++ {
		line, err := l.next()
		if err != nil {
			return nil, fmt.Errorf("it is not there: %w", err)
		}
		if n == seq {
			return line, nil
		}
	}
}

// Verify checks a proof and returns the record that it proves.
func (p Proof) Verify(v note.Verifier) (Record, error) {
	if len(p.Record) > MaxLine || len(p.Hashes) > 64 {
		return Record{}, errors.New("it is too long for a proof")
	}
	r, err := decode([]byte(p.Record))
	if err != nil {
		return Record{}, err
	}
	c, err := ParseCheckpoint([]byte(p.Checkpoint), v)
	if err != nil {
		return Record{}, err
	}
	if err := tlog.CheckRecord(p.Hashes, c.Tree.N, c.Tree.Hash, r.Seq, tlog.RecordHash([]byte(p.Record))); err != nil {
		return Record{}, fmt.Errorf("the record is not in the signed tree: %w", err)
	}
	return r, nil
}

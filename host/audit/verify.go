package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"
)

// Trail is the trail of a folder, for reading.
type Trail struct {
	d   *dir
	v   note.Verifier
	key string // of v
}

// OpenTrail opens a trail that is there.
func OpenTrail(folder string) (*Trail, error) {
	d, err := openDir(folder, false)
	if err != nil {
		return nil, err
	}
	raw, err := d.readFile(verifierFile, 1<<10)
	if err == nil {
		t := &Trail{d: d, key: strings.TrimSpace(string(raw))}
		if t.v, err = ParseVerifier(raw); err == nil {
			return t, nil
		}
	}
	d.close()
	return nil, fmt.Errorf("cannot read the audit trail: %s: %w", d.file(verifierFile), err)
}

// Close ends the reading.
func (t *Trail) Close() { t.d.close() }

// Verifier is the key that the trail says is its own: one that was kept
// elsewhere says more.
func (t *Trail) Verifier() note.Verifier { return t.v }

// Key is the public key of Verifier in the form of C2SP signed-note.
func (t *Trail) Key() string { return t.key }

// Head is the newest signed head; ok is false if nothing was signed yet.
func (t *Trail) Head() (c Checkpoint, ok bool, err error) {
	raw, err := t.d.readFile(checkpointFile, maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, false, nil
	}
	if err == nil {
		c, err = ParseCheckpoint(raw, t.v)
	}
	if err != nil {
		return Checkpoint{}, false, fmt.Errorf("cannot read the head of the audit trail: %w", err)
	}
	return c, true, nil
}

// Fault is something in a trail that no writer leaves there.
type Fault struct {
	Seq  int64  `json:"seq"` // of the record, or of where one should be
	Text string `json:"text"`
}

// Verdict is what Verify found.
type Verdict struct {
	First    int64   `json:"first"`    // number of the first record that is there; before it all were pruned
	Records  int64   `json:"records"`  // written in all
	Signed   int64   `json:"signed"`   // of these, covered by the trail's own newest head
	Anchored bool    `json:"anchored"` // it goes on from the given head
	Faults   []Fault `json:"faults"`   // at most maxFaults
}

const maxFaults = 20

// OK says whether nothing is wrong.
func (v Verdict) OK() bool { return len(v.Faults) == 0 }

// verification is one pass over a trail.
type verification struct {
	v      Verdict
	at     position
	tree   frontier
	hashes io.Reader // from the hash of the next record on; nil once they differ
	wanted map[int64][]want
	pruned int64 // the last that the trail says itself
}

// want is a root that the tree must have at some size.
type want struct {
	root tlog.Hash
	text string
	ok   *bool
}

// Verify reads the whole trail. A head that was kept elsewhere, if one is
// given, is what a cut tail, a rollback or a fork cannot get around.
func (t *Trail) Verify(head *Checkpoint) (Verdict, error) {
	all, err := t.d.segments()
	if err != nil {
		return Verdict{}, err
	}
	r := &verification{wanted: map[int64][]want{}}
	own, signed, err := t.Head()
	if err != nil {
		r.fault(0, "%v", err)
	}
	if signed {
		r.v.Signed = own.Tree.N
		r.want(own.Tree, "the tree is not the one that was signed", nil)
	}
	if head != nil {
		r.want(head.Tree, "the tree is not the one of the given head: records before it were changed, or it is a fork", &r.v.Anchored)
	}
	if len(all) > 0 {
		r.v.First = all[0]
	}
	if err := r.begin(t.d); err != nil {
		return Verdict{}, err
	}
	for i, first := range all {
		if first != r.at.n {
			r.fault(r.at.n, "records up to %d are missing", first-1)
			return r.end(), nil
		}
		if err := r.segment(t.d, first, i == len(all)-1); err != nil {
			return Verdict{}, err
		}
	}
	return r.end(), nil
}

func (r *verification) fault(seq int64, format string, args ...any) {
	if len(r.v.Faults) < maxFaults {
		r.v.Faults = append(r.v.Faults, Fault{seq, fmt.Sprintf(format, args...)})
	}
}

func (r *verification) want(t tlog.Tree, text string, ok *bool) {
	r.wanted[t.N] = append(r.wanted[t.N], want{t.Hash, text, ok})
}

// begin takes the tree of pruned records from its hashes. What is not there
// cannot be checked, but for its root in a signed head.
func (r *verification) begin(d *dir) error {
	f, err := d.open(hashFile, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		r.fault(0, "the file %s is missing", hashFile)
		return nil
	}
	if err != nil {
		return err
	}
	if r.tree, err = frontierAt(r.v.First, stored(f)); err != nil {
		r.fault(0, "%v", err)
	}
	if _, err := f.Seek(hashesSize(r.v.First), io.SeekStart); err != nil {
		return err
	}
	r.at, r.hashes = position{segment: r.v.First, n: r.v.First}, bufio.NewReaderSize(f, 1<<20)
	r.compare()
	return nil
}

// segment reads one. The last may end in a line without an end: of a writer that
// is just writing or was killed, which has told nobody that it was written.
func (r *verification) segment(d *dir, first int64, last bool) error {
	f, err := d.open(segmentName(first), unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	for l := newLines(f); ; {
		line, err := l.next()
		switch {
		case err == io.EOF, errors.Is(err, errTorn) && last:
			return nil
		case errors.Is(err, errTorn), errors.Is(err, errLong):
			r.fault(r.at.n, "%v", err)
			r.at.n++
			continue
		case err != nil:
			return err
		}
		r.record(line)
	}
}

// record checks one and goes on from what is there: one edit is one fault in the
// chain, whatever follows.
func (r *verification) record(line []byte) {
	if r.at.n == r.v.First && r.v.First > 0 { // nothing is there to compare with
		if rec, err := decode(line); err == nil {
			r.at.last = rec.Prev
		}
	}
	rec, err := r.at.follows(line)
	if err != nil {
		r.fault(r.at.n, "%v", err)
	}
	if rec.Kind == KindPrune {
		r.pruned = max(r.pruned, rec.Count)
	}
	list := r.tree.add(tlog.RecordHash(line))
	if r.hashes != nil {
		have := make([]byte, len(list)*tlog.HashSize)
		if _, err := io.ReadFull(r.hashes, have); err != nil {
			r.hashes = nil // of a record that is just being written, or cut off
		} else if !bytes.Equal(have, flat(list)) {
			r.fault(r.at.n, "the record is not the one whose hash was kept")
			r.hashes = nil
		}
	}
	r.at = position{n: r.at.n + 1, last: sha256.Sum256(line)}
	r.compare()
}

func flat(list []tlog.Hash) (raw []byte) {
	for _, h := range list {
		raw = append(raw, h[:]...)
	}
	return raw
}

// compare checks the root where one is known.
func (r *verification) compare() {
	for _, w := range r.wanted[r.tree.n] {
		if r.tree.root() != w.root {
			r.fault(r.tree.n, "%s (%d records)", w.text, r.tree.n)
		} else if w.ok != nil {
			*w.ok = true
		}
	}
	delete(r.wanted, r.tree.n)
}

func (r *verification) end() Verdict {
	r.v.Records = r.tree.n
	for n := range r.wanted {
		if n > r.tree.n {
			r.fault(r.tree.n, "%d records are there, and %d were signed: the end was cut off", r.tree.n, n)
		} else {
			r.fault(n, "what a head says of the first %d records cannot be checked: they were pruned", n)
		}
	}
	if r.v.First > 0 && r.pruned < r.v.First {
		r.fault(0, "records before %d are missing, and the trail does not say that they were pruned", r.v.First)
	}
	if !r.v.OK() {
		r.v.Anchored = false
	}
	return r.v
}

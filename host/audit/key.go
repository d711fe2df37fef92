package audit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/berthos/berth/host/hint"
)

// Names in the folder of a trail.
const (
	keyFile        = "key"        // signs checkpoints; only the writer reads it
	verifierFile   = "key.pub"    // its public half, in the form of C2SP signed-note
	checkpointFile = "checkpoint" // the newest signed head
	hashFile       = "hashes"     // of the tree, in the order of tlog.StoredHashIndex
	lockFile       = "lock"
)

// origin is the first line of a checkpoint and the name of its key: what is
// signed for one trail says nothing about another.
const originPrefix = "berth-audit-"

// Checkpoint is a signed head of the trail in the form of C2SP tlog-checkpoint.
type Checkpoint struct {
	Tree tlog.Tree
	Text []byte // as signed
	at   position
}

// position is a place between two records. It stands in a checkpoint so that a
// writer goes on from there without reading what is before.
type position struct {
	segment int64 // the number of its first record
	offset  int64 // in bytes
	n       int64 // of the next record
	last    Hash  // of the line before
}

// signer returns the key of the trail, which it makes at first use.
func signer(d *dir) (note.Signer, error) {
	raw, err := d.readFile(keyFile, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = makeKey(d)
	}
	if err != nil {
		return nil, err
	}
	s, err := note.NewSigner(strings.TrimSpace(string(raw)))
	if err != nil {
		return nil, hint.Errorf("move the folder of the trail away to begin a new one", "cannot use %s: it is no key", d.file(keyFile))
	}
	return s, nil
}

func makeKey(d *dir) ([]byte, error) {
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	secret, public, err := note.GenerateKey(rand.Reader, originPrefix+hex.EncodeToString(id))
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	// The public half first: a key without it would be found again, and then not.
	if err := d.replaceFile(verifierFile, []byte(public+"\n"), 0o644); err != nil {
		return nil, err
	}
	return []byte(secret), d.replaceFile(keyFile, []byte(secret+"\n"), 0o600)
}

// ParseVerifier reads the public half of a trail's key.
func ParseVerifier(raw []byte) (note.Verifier, error) {
	v, err := note.NewVerifier(strings.TrimSpace(string(raw)))
	if err != nil || !strings.HasPrefix(v.Name(), originPrefix) {
		return nil, errors.New("it is no public key of an audit trail")
	}
	return v, nil
}

// sign makes the checkpoint of a tree whose last record ends at a position.
func sign(t tlog.Tree, at position, s note.Signer) (Checkpoint, error) {
	body := fmt.Sprintf("%s\n%d\n%s\n%s\n", s.Name(), t.N, t.Hash, at)
	text, err := note.Sign(&note.Note{Text: body}, s)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("cannot sign the head: %w", err)
	}
	return Checkpoint{Tree: t, Text: text, at: at}, nil
}

// String is the extension line of a checkpoint.
func (p position) String() string {
	return fmt.Sprintf("position %d %d %s", p.segment, p.offset, p.last)
}

func parsePosition(line string, n int64) (p position, err error) {
	var last string
	if _, err := fmt.Sscanf(line, "position %d %d %s", &p.segment, &p.offset, &last); err != nil {
		return position{}, err
	}
	if err := p.last.UnmarshalText([]byte(last)); err != nil {
		return position{}, err
	}
	p.n = n
	if p.String() != line || p.segment < 0 || p.segment > n || p.offset < 0 {
		return position{}, errors.New("out of range")
	}
	return p, nil
}

// maxCheckpoint is the size of one with its signature, in bytes; it is far less.
const maxCheckpoint = 4 << 10

// ParseCheckpoint reads a head that v signed.
func ParseCheckpoint(text []byte, v note.Verifier) (Checkpoint, error) {
	if len(text) > maxCheckpoint {
		return Checkpoint{}, errors.New("it is too long for a head")
	}
	n, err := note.Open(text, note.VerifierList(v))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("it is no head signed by the key %s: %w", v.Name(), err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 5 || lines[0] != v.Name() {
		return Checkpoint{}, errors.New("it is no head of this trail")
	}
	c := Checkpoint{Text: text}
	if c.Tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Tree.N < 0 || strconv.FormatInt(c.Tree.N, 10) != lines[1] {
		return Checkpoint{}, errors.New("its number of records is none")
	}
	if c.Tree.Hash, err = tlog.ParseHash(lines[2]); err != nil {
		return Checkpoint{}, errors.New("its root hash is none")
	}
	if c.at, err = parsePosition(lines[3], c.Tree.N); err != nil {
		return Checkpoint{}, fmt.Errorf("its position is none: %w", err)
	}
	return c, nil
}

// Package audit owns the audit trail: what sandboxes were asked, what was
// decided and what was denied, one JSON line each, in a hash chain and a Merkle
// tree whose heads are signed. docs/spec/audit.md is the format.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxLine is the length that a line may have, in bytes with its newline.
const MaxLine = 64 << 10

// maxText bounds each text of a record, in bytes; a longer one is cut; all
// of them to less if the line has no room.
const maxText = 4 << 10

// Kind says what a record is about.
type Kind string

// Kinds of records.
const (
	KindStart  Kind = "start"  // an app is enforced and may execute
	KindStop   Kind = "stop"   // an app, or with no app the sandbox, ended
	KindCall   Kind = "call"   // an export was asked for; written before the app is asked
	KindResult Kind = "result" // how a call ended
	KindDenial Kind = "denial" // the kernel refused an app something and recorded it
	KindLoss   Kind = "loss"   // records are missing: how many, and why
	KindName   Kind = "name"   // a name that hosts execute was refused or made
	KindPrune  Kind = "prune"  // records before a number were removed on purpose
)

// Decision is what came of a call.
type Decision string

// Decisions.
const (
	Allowed     Decision = "allowed"     // it was carried out
	Denied      Decision = "denied"      // the sandbox refused it, or what it needed
	Unavailable Decision = "unavailable" // it did not get to the app, or was cut off
	Failed      Decision = "failed"      // the app answered with an error of its own
)

// Hash is a SHA-256, as hexadecimal text in JSON.
type Hash [sha256.Size]byte

// MarshalText is the lower-case hexadecimal form.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads that form.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return errors.New("a hash has 64 hexadecimal digits")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Record is one line of the trail. Fields that do not apply are absent. Texts
// that an app chose are no more than that.
type Record struct {
	Seq  int64  `json:"seq"`  // 0, 1, 2, …
	Prev Hash   `json:"prev"` // SHA-256 of the line before without its newline; zeros for seq 0
	Time string `json:"time"` // of the host, UTC, nine digits after the point
	Run  string `json:"run,omitempty"`
	Kind Kind   `json:"kind"`

	App    string `json:"app,omitempty"`
	Export string `json:"export,omitempty"`
	// Actor is who asked, and ActorBy how that is known.
	Actor   string `json:"actor,omitempty"`
	ActorBy string `json:"actor_by,omitempty"`
	Call    *int64 `json:"call,omitempty"` // seq of the call that this belongs to

	Decision   Decision  `json:"decision,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Capability string    `json:"capability,omitempty"` // the manifest line that would allow it
	Evidence   *Evidence `json:"evidence,omitempty"`
	Input      *Payload  `json:"input,omitempty"`
	Output     *Payload  `json:"output,omitempty"`
	Count      int64     `json:"count,omitempty"` // loss: how many; prune: the first seq that is kept
	Bound      *Bound    `json:"bound,omitempty"` // start: what was enforced on what
}

// Evidence is what the guest's kernel recorded of a denial.
type Evidence struct {
	Kind     string `json:"kind"`               // landlock, seccomp
	Blockers string `json:"blockers,omitempty"` // rights that were missing, with commas
	Object   string `json:"object,omitempty"`
	Syscall  string `json:"syscall,omitempty"`
	PID      int    `json:"pid,omitempty"` // in the guest
	Comm     string `json:"comm,omitempty"`
	Serial   uint64 `json:"serial,omitempty"` // of the kernel's record
}

// Payload is the size in bytes and the digest of what was passed, never itself.
type Payload struct {
	Bytes  int64 `json:"bytes"`
	SHA256 Hash  `json:"sha256"`
}

// Bound is what a start binds together. Guest marks what only the guest said.
type Bound struct {
	Image   string `json:"image"` // SHA-256 of the image's index
	Machine string `json:"machine"`
	Version string `json:"version"` // of the app
	Code    string `json:"code"`    // digest that the policy names
	Policy  string `json:"policy"`  // SHA-256 that host and guest agree on
	Guest   Guest  `json:"guest"`
}

// Guest is what the guest reported of itself.
type Guest struct {
	Kernel string   `json:"kernel,omitempty"`
	ABI    int      `json:"landlock_abi,omitempty"`
	Steps  []string `json:"steps,omitempty"`
	Weaker []string `json:"weaker,omitempty"`
}

// timeLayout has as many digits for every time, so that texts sort as times do.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// encode returns the line of a record without its newline: the canonical form.
func encode(r Record) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	if b.Len() > MaxLine {
		return nil, errTooLong
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

var (
	errTooLong      = fmt.Errorf("a record has more than %d bytes", MaxLine)
	errNotCanonical = errors.New("it is not in canonical form")
)

// decode reads a line without its newline, which must be canonical: one record
// has one sequence of bytes. So a member that is unknown, repeated or out of
// place is found by what it would be written as.
func decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, fmt.Errorf("it is no record: %w", err)
	}
	again, err := encode(r)
	if err != nil {
		return Record{}, err
	}
	if !bytes.Equal(again, line) {
		return Record{}, errNotCanonical
	}
	return r, nil
}

// check refuses what no writer of this package writes.
func (r Record) check() error {
	if _, err := time.Parse(timeLayout, r.Time); err != nil {
		return fmt.Errorf("its time is none: %w", err)
	}
	switch r.Kind {
	case KindStart, KindStop, KindCall, KindResult, KindDenial, KindLoss, KindName, KindPrune:
	default:
		return fmt.Errorf("kind %q is none", r.Kind)
	}
	switch r.Decision {
	case "", Allowed, Denied, Unavailable, Failed:
	default:
		return fmt.Errorf("decision %q is none", r.Decision)
	}
	return nil
}

// fitted is the line of a record whose texts are valid UTF-8, which has one form
// in JSON, and cut where the line has no room for them.
func fitted(r Record) (line []byte, err error) {
	for most := maxText; most > 0; most /= 2 {
		if line, err = encode(r.cut(most)); !errors.Is(err, errTooLong) {
			return line, err
		}
	}
	return nil, err
}

func (r Record) cut(most int) Record {
	texts := []*string{&r.Run, &r.App, &r.Export, &r.Actor, &r.ActorBy, &r.Reason, &r.Capability}
	if r.Evidence != nil {
		e := *r.Evidence
		texts = append(texts, &e.Kind, &e.Blockers, &e.Object, &e.Syscall, &e.Comm)
		r.Evidence = &e
	}
	if r.Bound != nil {
		b := *r.Bound
		texts = append(texts, &b.Image, &b.Machine, &b.Version, &b.Code, &b.Policy, &b.Guest.Kernel)
		b.Guest.Steps, b.Guest.Weaker = cutList(b.Guest.Steps, most), cutList(b.Guest.Weaker, most)
		r.Bound = &b
	}
	for _, s := range texts {
		*s = cutText(*s, most)
	}
	return r
}

// cutList keeps as many bytes of a list as of a text.
func cutList(list []string, most int) (kept []string) {
	for _, s := range list {
		if most -= len(s); most < 0 {
			break
		}
		kept = append(kept, cutText(s, len(s)))
	}
	return kept
}

func cutText(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

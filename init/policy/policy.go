// Package policy owns the compiled policy: the immutable value that the host
// compiles from a manifest, whose canonical JSON bytes the enforcer parses and
// whose digest both sides compare before an app may run.
package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Schema is the version of the policy format that this package reads and writes.
const Schema = 1

// MaxBytes bounds an encoded policy; longer input is refused before it is parsed.
const MaxBytes = 1 << 20

// Access says what may be done below a path. Write includes reading.
type Access string

// The two kinds of access.
const (
	Read  Access = "read"
	Write Access = "write"
)

// Path is one granted place: an absolute, clean guest path and the access to it.
type Path struct {
	Path   string `json:"path"`
	Access Access `json:"access"`
}

// Limits bounds what an app may use. CPUMilli is thousandths of one CPU,
// MemoryMB is MiB (2^20 bytes), Pids counts threads.
type Limits struct {
	CPUMilli int `json:"cpu_milli"`
	MemoryMB int `json:"memory_mb"`
	Pids     int `json:"pids"`
}

// Policy is everything the guest enforces for one app. Slices are sorted and
// never nil once compiled, so that equal policies have equal bytes.
type Policy struct {
	Schema  int      `json:"schema"`
	App     string   `json:"app"`
	Version string   `json:"version"`
	Code    string   `json:"code"`    // "sha256:<hex>" of the app image mounted at /app
	Argv    []string `json:"argv"`    // what is executed; Argv[0] lies below /app
	Class   string   `json:"class"`   // seccomp profile, a name from package seccomp
	Paths   []Path   `json:"paths"`   // sorted by path, at most one entry a path
	Connect []uint16 `json:"connect"` // TCP and UDP ports the app may connect to
	Bind    []uint16 `json:"bind"`    // TCP and UDP ports the app may bind
	Limits  Limits   `json:"limits"`
	Exports []string `json:"exports"` // names the app must announce, sorted
}

// Encode returns the canonical bytes of p: one line of JSON without HTML
// escaping and without a trailing newline.
func (p Policy) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("cannot encode policy of app %q: %w", p.App, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// ErrNotCanonical is returned by Parse for bytes that Encode would not produce.
var ErrNotCanonical = errors.New("bytes are not the canonical encoding")

// Parse reads the canonical bytes of a policy. It refuses unknown keys, other
// schemas, and any bytes that differ from their own re-encoding, so that one
// policy has exactly one digest.
func Parse(raw []byte) (Policy, error) {
	if len(raw) > MaxBytes {
		return Policy{}, fmt.Errorf("cannot parse policy: %d bytes, at most %d are read", len(raw), MaxBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var p Policy
	if err := dec.Decode(&p); err != nil {
		return Policy{}, fmt.Errorf("cannot parse policy: %w", err)
	}
	if p.Schema != Schema {
		return Policy{}, fmt.Errorf("cannot parse policy: schema %d, this build reads %d", p.Schema, Schema)
	}
	again, err := p.Encode()
	if err != nil {
		return Policy{}, err
	}
	if !bytes.Equal(raw, again) {
		return Policy{}, fmt.Errorf("cannot parse policy of app %q: %w", p.App, ErrNotCanonical)
	}
	return p, nil
}

// Digest returns the lower-case hex sha256 of a policy's encoded bytes.
func Digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

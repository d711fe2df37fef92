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
	"slices"
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

// Invoke lets the app call another app of the same sandbox.
type Invoke struct {
	App     string   `json:"app"`
	Exports []string `json:"exports"` // sorted; empty: every export
}

// Rights is what a process of the app may do. Those of a worker lie within
// those of its app.
type Rights struct {
	Class        string   `json:"class"`         // seccomp profile, a name from package seccomp
	Paths        []Path   `json:"paths"`         // sorted by path, at most one entry a path
	Connect      []uint16 `json:"connect"`       // TCP and UDP ports it may connect to
	Bind         []uint16 `json:"bind"`          // TCP and UDP ports it may bind
	Terminal     bool     `json:"terminal"`      // it may make and use pseudo terminals
	Invoke       []Invoke `json:"invoke"`        // sorted by app, at most one entry an app
	Secrets      []string `json:"secrets"`       // names of environment variables that it is given, sorted
	HostExecuted []string `json:"host_executed"` // names that hosts execute and that it may write all the same, sorted
}

// Worker is a process of the app that serves some of its exports with fewer
// rights.
type Worker struct {
	Name string `json:"name"` // that of its first export
	Rights
	Exports []string `json:"exports"` // names it must announce, sorted, at least one
}

// Policy is everything the guest enforces for one app. Slices are sorted.
type Policy struct {
	Schema  int      `json:"schema"`
	App     string   `json:"app"`
	Version string   `json:"version"`
	Code    string   `json:"code"` // "sha256:<hex>" of the app image mounted at /app
	Argv    []string `json:"argv"` // what is executed; Argv[0] lies below /app
	Rights
	Limits  Limits   `json:"limits"`  // of all its processes together
	Exports []string `json:"exports"` // names its main process must announce, sorted
	Workers []Worker `json:"workers"` // sorted by name
}

// Encode returns the canonical bytes of p: one line of JSON without HTML
// escaping, without null, and without a trailing newline.
func (p Policy) Encode() ([]byte, error) {
	p.Rights, p.Argv, p.Exports = p.Rights.filled(), fill(p.Argv), fill(p.Exports)
	p.Workers = slices.Clone(fill(p.Workers))
	for i, w := range p.Workers {
		p.Workers[i].Rights, p.Workers[i].Exports = w.Rights.filled(), fill(w.Exports)
	}
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

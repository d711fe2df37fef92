package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the index in an image folder.
const (
	File       = "index.json"
	DigestFile = "index.json.sha256" // one line of sha256sum(1)
)

// MaxBytes bounds an encoded index; longer input is refused before it is parsed.
const MaxBytes = 1 << 20

// ErrNotCanonical is returned by Parse for bytes that Encode would not produce.
var ErrNotCanonical = errors.New("bytes are not the canonical encoding")

// Encode returns the canonical bytes of i: indented JSON, keys in the order of
// the struct (and sorted in Toolchain), no HTML escaping, one newline at the end.
func (i Index) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(i); err != nil {
		return nil, fmt.Errorf("cannot encode image index: %w", err)
	}
	return b.Bytes(), nil
}

// Parse reads the canonical bytes of an index and validates every field. It
// refuses unknown keys and any bytes that differ from their own re-encoding, so
// that one index has exactly one digest.
func Parse(raw []byte) (Index, error) {
	if len(raw) > MaxBytes {
		return Index{}, fmt.Errorf("cannot parse image index: %d bytes, at most %d are read", len(raw), MaxBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var i Index
	if err := dec.Decode(&i); err != nil {
		return Index{}, fmt.Errorf("cannot parse image index: %w", err)
	}
	if err := i.validate(); err != nil {
		return Index{}, fmt.Errorf("cannot parse image index: %w", err)
	}
	again, err := i.Encode()
	if err != nil {
		return Index{}, err
	}
	if !bytes.Equal(raw, again) {
		return Index{}, fmt.Errorf("cannot parse image index: %w", ErrNotCanonical)
	}
	return i, nil
}

// Digest returns the lower-case hex sha256 of an encoded index.
func Digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// DigestLine is the content of DigestFile for a digest.
func DigestLine(digest string) string { return digest + "  " + File + "\n" }

// Read returns the index of an image folder and its digest, which must be the
// one in DigestFile. It does not look at the artifacts: Verify does.
func Read(dir string) (Index, string, error) {
	line, err := readAtMost(filepath.Join(dir, DigestFile), 256)
	if err != nil {
		return Index{}, "", fmt.Errorf("cannot read digest of image index: %w", err)
	}
	raw, err := readAtMost(filepath.Join(dir, File), MaxBytes)
	if err != nil {
		return Index{}, "", fmt.Errorf("cannot read image index: %w", err)
	}
	want, ok := strings.CutSuffix(string(line), DigestLine(""))
	if !ok || checkHex(want, sha256.Size) != nil {
		return Index{}, "", fmt.Errorf("cannot read digest of image index: %s is not one line \"<sha256>%s\"", filepath.Join(dir, DigestFile), strings.TrimSuffix(DigestLine(""), "\n"))
	}
	got := Digest(raw)
	if got != want {
		return Index{}, "", &MismatchError{File: filepath.Join(dir, File), Want: want, Got: got}
	}
	i, err := Parse(raw)
	return i, got, err
}

// readAtMost reads a file whose size is checked first.
func readAtMost(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", name, info.Size(), limit)
	}
	return os.ReadFile(name)
}

// Package appimage owns the app image: the deterministic tar whose digest stands
// in an app's policy, how it is built from a folder and how it is unpacked.
package appimage

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Limits of every image. Unpack takes a smaller one for the bytes if asked.
const (
	MaxBytes   = 1 << 30 // of the whole image, headers included
	MaxEntries = 1 << 16
)

// digestPrefix begins every digest; what follows is lower-case hex.
const digestPrefix = "sha256:"

// The only modes an image holds.
const (
	modeExec = 0o755
	modeFile = 0o644
)

// Causes of a refused image or folder, for callers that must tell them apart.
var (
	ErrTooLarge = errors.New("too large")
	ErrDigest   = errors.New("digest differs")
	ErrHostile  = errors.New("not an image that Build makes")
)

// blockSize is the unit of a tar; an image ends in exactly two empty ones.
const blockSize = 512

func digestOf(h hash.Hash) string { return digestPrefix + hex.EncodeToString(h.Sum(nil)) }

func checkDigest(s string) error {
	digits, ok := strings.CutPrefix(s, digestPrefix)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != sha256.Size || digits != strings.ToLower(digits) {
		return fmt.Errorf("digest %q is not %s and %d lower-case hex digits", s, digestPrefix, 2*sha256.Size)
	}
	return nil
}

// checkName holds for both directions, so that Build refuses early what Unpack
// would refuse in the guest.
func checkName(name string) error {
	switch {
	case name == ".", !fs.ValidPath(name), strings.ContainsRune(name, 0):
		return fmt.Errorf("name %q is not a clean, relative UTF-8 path", name)
	case len(name) > 4000:
		return fmt.Errorf("name %.40q… has %d bytes, at most 4000 are allowed", name, len(name))
	}
	return nil
}

// checkTarget allows a link only where no chain of links of the image can lead
// outside: ".." may only come first (the folders above a link are real ones),
// and at most as often as the link lies deep.
func checkTarget(name, target string) error {
	rest, ups := target, 0
	for {
		after, ok := strings.CutPrefix(rest+"/", "../")
		if !ok {
			break
		}
		rest, ups = strings.TrimSuffix(after, "/"), ups+1
	}
	inside := ups <= strings.Count(name, "/") && (rest == "" && ups > 0 || fs.ValidPath(rest))
	if !inside || strings.ContainsRune(target, 0) || len(target) > 4000 {
		return fmt.Errorf("link %q points to %q, which is not a relative path that stays inside", name, target)
	}
	return nil
}

// less orders names as a walk meets them: component by component.
func less(a, b string) bool {
	for a != "" && b != "" {
		headA, restA, _ := strings.Cut(a, "/")
		headB, restB, _ := strings.Cut(b, "/")
		if headA != headB {
			return headA < headB
		}
		a, b = restA, restB
	}
	return a == "" && b != ""
}

// header is the only header an image holds for such an entry.
func header(kind byte, name, target string, mode, size int64) *tar.Header {
	if kind == tar.TypeDir {
		name += "/"
	}
	return &tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: mode, Size: size}
}

// counter hashes and counts what passes, and stops at its limit.
type counter struct {
	r    io.Reader
	w    io.Writer
	hash hash.Hash
	n    int64
	max  int64
}

func (c *counter) Read(p []byte) (int, error) {
	// One byte more than allowed is asked for, so that an image of exactly the
	// limit is not mistaken for a longer one.
	if left := c.max - c.n + 1; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.max {
		return 0, fmt.Errorf("more than %d bytes: %w", c.max, ErrTooLarge)
	}
	c.hash.Write(p[:n])
	return n, err
}

func (c *counter) Write(p []byte) (int, error) {
	if c.n+int64(len(p)) > c.max {
		return 0, fmt.Errorf("more than %d bytes: %w", c.max, ErrTooLarge)
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.hash.Write(p[:n])
	return n, err
}

func parent(name string) string { return path.Dir(name) }

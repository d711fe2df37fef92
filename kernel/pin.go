// Package kernel owns what goes into the guest kernel: the pin of its source,
// the configuration fragments, and the check that a finished configuration
// holds every line of them.
package kernel

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
	"strings"
)

//go:embed pin.json
var pinJSON []byte

// A Pin names one source package by its digest. Wherever the bytes come from,
// they are used only if they have this digest and this size.
type Pin struct {
	// Version is the kernel's own, "7.3.4".
	Version string `json:"version"`
	// Package is the Debian package that carries the source tarball.
	Package string `json:"package"`
	// PackageVersion is that package's version, "7.3.4-1~bpo13+1".
	PackageVersion string `json:"package_version"`
	// Suite is the Debian suite whose index the pin was taken from.
	Suite string `json:"suite"`
	// PoolPath is where the package lies below a Debian mirror.
	PoolPath string `json:"pool_path"`
	SHA256   string `json:"sha256"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Archives are further URLs of the same bytes, tried after the mirrors:
	// old versions leave the pool.
	Archives []string `json:"archives"`
}

// maxSource bounds a source package: a pin that asks for more is a mistake.
const maxSource = 1 << 30

var (
	reVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)?$`)
	reName    = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`)
	reDebian  = regexp.MustCompile(`^[0-9][A-Za-z0-9.+~-]*$`)
	reSHA256  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// LoadPin returns the pin of this checkout.
func LoadPin() (Pin, error) {
	p, err := ParsePin(pinJSON)
	if err != nil {
		return Pin{}, fmt.Errorf("cannot read kernel/pin.json: %w", err)
	}
	return p, nil
}

// ParsePin reads a pin strictly: unknown fields, trailing data and values that
// could name something else than one file of a mirror are errors.
func ParsePin(data []byte) (Pin, error) {
	var p Pin
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Pin{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Pin{}, errors.New("data after the pin")
	}
	return p, p.check()
}

// Encode is the inverse of ParsePin.
func (p Pin) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(p)
	return b.Bytes(), err
}

// FileName is the base name of the pinned package.
func (p Pin) FileName() string { return path.Base(p.PoolPath) }

func (p Pin) check() error {
	var errs []error
	match := func(field, value string, re *regexp.Regexp) {
		if !re.MatchString(value) {
			errs = append(errs, fmt.Errorf("%s %q is not valid", field, value))
		}
	}
	match("version", p.Version, reVersion)
	match("package", p.Package, reName)
	match("package_version", p.PackageVersion, reDebian)
	match("suite", p.Suite, reName)
	match("sha256", p.SHA256, reSHA256)
	if !strings.HasPrefix(p.PoolPath, "pool/") || path.Clean(p.PoolPath) != p.PoolPath || !strings.HasSuffix(p.PoolPath, ".deb") {
		errs = append(errs, fmt.Errorf("pool_path %q is not a .deb below pool/", p.PoolPath))
	}
	if p.Size <= 0 || p.Size > maxSource {
		errs = append(errs, fmt.Errorf("size %d is not between 1 and %d", p.Size, maxSource))
	}
	for _, a := range p.Archives {
		u, err := url.Parse(a)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil {
			errs = append(errs, fmt.Errorf("archive %q is not an http(s) URL", a))
		}
	}
	return errors.Join(errs...)
}

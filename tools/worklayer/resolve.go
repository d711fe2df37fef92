package worklayer

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Package is one Debian package, pinned.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URI     string `json:"uri"`
	File    string `json:"file"`
	Bytes   string `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// pool is the package's place below a mirror.
func (p Package) pool() string {
	if i := strings.Index(p.URI, "/pool/"); i >= 0 {
		return p.URI[i+1:]
	}
	return p.File
}

// resolve asks apt which packages are needed on a machine that has none, and for
// their digests, which apt has checked against the archive's signature. Nothing
// of this machine's is changed.
func resolve(ctx context.Context, o Options) ([]Package, error) {
	state, err := os.MkdirTemp("", "berth-apt-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a folder for apt: %w", err)
	}
	defer os.RemoveAll(state)
	status := filepath.Join(state, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	settings := []string{"Dir::State::status=" + status, "Dir::Cache=" + state, "Debug::NoLocking=1", "APT::Install-Recommends=false", "Acquire::ForceHash=SHA256"}
	install := append([]string{"--print-uris", "-qq", "-y", "install"}, o.Packages...)
	out, err := apt(ctx, settings, install...)
	if err != nil { // perhaps this machine has no lists of packages: private ones do as well
		o.Notice("apt can not resolve with this machine's lists; fetching lists: " + err.Error())
		lists := filepath.Join(state, "lists")
		if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
			return nil, err
		}
		settings = append(settings, "Dir::State::Lists="+lists, "APT::Sandbox::User=root")
		if _, err = apt(ctx, settings, "-qq", "update"); err == nil {
			out, err = apt(ctx, settings, install...)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot resolve packages %s: %w", strings.Join(o.Packages, " "), err)
	}
	return parse(out, o.Without)
}

func apt(ctx context.Context, settings []string, args ...string) ([]byte, error) {
	var all []string
	for _, s := range settings {
		all = append(all, "-o", s)
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(all, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get: %w: %s", err, strings.ReplaceAll(strings.TrimSpace(stderr.String()), "\n", "; "))
	}
	return out, nil
}

var reURI = regexp.MustCompile(`^'([^']+)' (([a-z0-9][a-z0-9+.-]*)_([^_/ ]+)_[a-z0-9]+\.deb) ([0-9]+) SHA256:([0-9a-f]{64})$`)

// parse reads what apt-get --print-uris says, and sorts it.
func parse(out []byte, without []string) (packages []Package, err error) {
	for line := range strings.Lines(string(out)) {
		m := reURI.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("cannot read what apt-get says: %q", strings.TrimSpace(line))
		}
		if slices.Contains(without, m[3]) {
			continue
		}
		version, err := url.PathUnescape(m[4])
		if err != nil {
			return nil, fmt.Errorf("cannot read the version of %s: %w", m[2], err)
		}
		packages = append(packages, Package{Name: m[3], Version: version, URI: m[1], File: m[2], Bytes: m[5], SHA256: m[6]})
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return packages, nil
}

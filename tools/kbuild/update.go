package kbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/kernel"
	"github.com/berthos/berth/tools/fetch"
)

// Update makes the pin of another version of the kernel's source from the
// signed package index of a mirror: the index's signature is checked with the
// keys of the archive, the index against it, and the package against the index.
func Update(ctx context.Context, opt Options, old kernel.Pin, version string) (kernel.Pin, error) {
	b := &build{arch: "source", log: opt.Log, getenv: opt.Getenv, cacheDir: opt.CacheDir}
	if b.log == nil {
		b.log = io.Discard
	}
	if b.getenv == nil {
		b.getenv = os.Getenv
	}
	if err := b.openCache(); err != nil {
		return kernel.Pin{}, err
	}
	pin, err := candidate(old, version)
	if err != nil {
		return kernel.Pin{}, err
	}
	var tried []error
	for _, mirror := range Mirrors(b.getenv(EnvMirror), os.DirFS("/")) {
		index, err := packages(ctx, mirror, pin.Suite)
		if err == nil {
			if b.pin, err = pin.in(index); err == nil {
				_, err = b.fetch(ctx)
			}
		}
		if err == nil {
			return b.pin, nil
		}
		tried = append(tried, fmt.Errorf("%s: %w", mirror, err))
	}
	return kernel.Pin{}, hint.Errorf("set "+EnvMirror+" to a mirror that has it", "cannot pin %s %s: %w", pin.Package, version, errors.Join(tried...))
}

// wanted is a pin whose digest and size are still to be found.
type wanted struct{ kernel.Pin }

var (
	reUpstream = regexp.MustCompile(`^(([0-9]+\.[0-9]+)(?:\.[0-9]+)?)-`)
	reBackport = regexp.MustCompile(`~bpo([0-9]+)\+`)
)

// suites by Debian's release number, as backports name it.
var suites = map[string]string{"12": "bookworm", "13": "trixie", "14": "forky"}

func candidate(old kernel.Pin, version string) (wanted, error) {
	m := reUpstream.FindStringSubmatch(version)
	if m == nil {
		return wanted{}, hint.Errorf("give the Debian version, as "+old.PackageVersion, "cannot pin version %q: it is not that of a Debian package", version)
	}
	p := kernel.Pin{Version: m[1], Package: "linux-source-" + m[2], PackageVersion: version, Suite: "sid", Archives: []string{}}
	if bpo := reBackport.FindStringSubmatch(version); bpo != nil {
		if suites[bpo[1]] == "" {
			return wanted{}, fmt.Errorf("cannot pin version %q: no suite is known for ~bpo%s", version, bpo[1])
		}
		p.Suite = suites[bpo[1]] + "-backports"
	}
	return wanted{p}, nil
}

// in finds the wanted package in an index.
func (w wanted) in(index []byte) (kernel.Pin, error) {
	pin := w.Pin
	var others []string
	for _, p := range paragraphs(string(index)) {
		if p["package"] != pin.Package {
			continue
		}
		if p["version"] != pin.PackageVersion {
			others = append(others, p["version"])
			continue
		}
		size, err := strconv.ParseInt(p["size"], 10, 64)
		if err != nil {
			return kernel.Pin{}, fmt.Errorf("the index gives the size as %q", p["size"])
		}
		pin.PoolPath, pin.SHA256, pin.Size = p["filename"], p["sha256"], size
		_, err = pin.Encode()
		return pin, err
	}
	if others == nil {
		return kernel.Pin{}, fmt.Errorf("%s has no %s at all", pin.Suite, pin.Package)
	}
	return kernel.Pin{}, fmt.Errorf("%s has no %s %s, only %s", pin.Suite, pin.Package, pin.PackageVersion, strings.Join(others, ", "))
}

// maxIndex bounds what is taken from a mirror before it is verified.
const maxIndex = 64 << 20

const indexName = "main/binary-amd64/Packages.xz"

// packages returns a suite's verified package index.
func packages(ctx context.Context, mirror, suite string) ([]byte, error) {
	dists := mirror + "/dists/" + suite + "/"
	release, err := get(ctx, dists+"InRelease")
	if err != nil {
		return nil, err
	}
	signed, err := verifySignature(ctx, release)
	if err != nil {
		return nil, err
	}
	want, err := listed(signed, indexName)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "berth-index-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "Packages.xz")
	if err := fetch.File(ctx, file, want, []string{dists + indexName}, nil); err != nil {
		return nil, err
	}
	return output(exec.CommandContext(ctx, "xz", "-dc", file))
}

// keyring holds the archive's keys on Debian.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// verifySignature returns what a clear-signed file says, without anything that
// stands around the signed part.
func verifySignature(ctx context.Context, signed []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "gpgv", "--quiet", "--output", "-", "--keyring", keyring)
	cmd.Stdin = bytes.NewReader(signed)
	text, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("the index's signature does not hold (packages gpgv and debian-archive-keyring are needed to check it): %w", err)
	}
	return text, nil
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// listed finds a file's digest and size in a Release file.
func listed(release []byte, name string) (fetch.Want, error) {
	for _, p := range paragraphs(string(release)) {
		for line := range strings.Lines(p["sha256"]) {
			f := strings.Fields(line)
			if len(f) == 3 && f[2] == name {
				size, err := strconv.ParseInt(f[1], 10, 64)
				return fetch.Want{SHA256: f[0], Size: size}, err
			}
		}
	}
	return fetch.Want{}, fmt.Errorf("the index does not list %s", name)
}

func get(ctx context.Context, url string) ([]byte, error) {
	if !strings.HasPrefix(url, "http") {
		return os.ReadFile(strings.TrimPrefix(strings.TrimPrefix(url, "file:"), "//"))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxIndex))
}

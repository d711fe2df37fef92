package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/release/index"
)

// Environment variables that name another image folder. The folder alone is
// not enough: what it holds must be named too, so that no image slips in.
const (
	EnvDir    = "BERTH_IMAGE_DIR"
	EnvDigest = "BERTH_IMAGE_DIGEST"
)

const moduleLine = "module github.com/berthos/berth"

// Location is an image folder and where the trust in it comes from.
type Location struct {
	Dir    string `json:"dir"`
	Digest string `json:"digest,omitempty"` // sha256 the index must have; "": what the folder's own index.json.sha256 says
	Source string `json:"source"`           // for people: "checkout", "BERTH_IMAGE_DIR"
}

// Search says where Find looks. The zero value is the running program's world.
type Search struct {
	Getenv     func(string) string // nil: os.Getenv
	Executable string              // "": os.Executable, symlinks resolved
}

// Find returns the image folder of this program: the one that the environment
// names, else build/image of the checkout that the program was built in.
func Find(s Search) (Location, error) {
	getenv := s.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	if dir := getenv(EnvDir); dir != "" {
		return fromEnv(dir, getenv(EnvDigest))
	}
	exe := s.Executable
	if exe == "" {
		var err error
		if exe, err = ownPath(); err != nil {
			return Location{}, err
		}
	}
	checkout := filepath.Dir(filepath.Dir(exe))
	if !isCheckout(checkout) {
		return Location{}, hint.Errorf("run berth from the bin folder of a checkout after `make image`, or set "+EnvDir+" and "+EnvDigest,
			"cannot find an image: %s is not inside a Berth checkout", exe)
	}
	dir := filepath.Join(checkout, "build", "image")
	if _, err := os.Lstat(filepath.Join(dir, index.File)); errors.Is(err, os.ErrNotExist) {
		return Location{}, hint.Errorf("build it: make image", "cannot find an image: %s has no %s", dir, index.File)
	}
	return Location{Dir: dir, Source: "checkout " + checkout}, nil
}

func fromEnv(dir, digest string) (Location, error) {
	digest = strings.TrimPrefix(digest, "sha256:")
	if !filepath.IsAbs(dir) {
		return Location{}, hint.Errorf("give an absolute path", "cannot use %s: %q is not absolute", EnvDir, dir)
	}
	if !hexDigest.MatchString(digest) {
		return Location{}, hint.Errorf(fmt.Sprintf("if you trust that image: export %s=$(cut -c1-64 %s)", EnvDigest, filepath.Join(dir, index.DigestFile)),
			"cannot use %s: %s does not hold the sha256 of its index.json", EnvDir, EnvDigest)
	}
	return Location{Dir: filepath.Clean(dir), Digest: digest, Source: EnvDir}, nil
}

// ownPath is the running program's file, symlinks resolved.
func ownPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find the running program: %w", err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", fmt.Errorf("cannot resolve the running program: %w", err)
	}
	return exe, nil
}

func isCheckout(dir string) bool {
	raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	return strings.TrimSpace(first) == moduleLine
}

// hexDigest matches a lower-case sha256.
var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

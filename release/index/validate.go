package index

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// BlockSize is the size of data and hash blocks of the verity tree, in bytes.
const BlockSize = 4096

// MaxArtifact bounds the size of one artifact in bytes.
const MaxArtifact = 4 << 30

// Architectures that an index may name.
// maxErrata is a set of as many errata as a kernel can tell.
const maxErrata = 1<<31 - 1

var arches = []string{"arm64", "x86_64"}

func (i Index) validate() error {
	switch {
	case i.Schema != Schema:
		return fmt.Errorf("schema %d, this build reads %d", i.Schema, Schema)
	case i.Kind != KindImage && i.Kind != KindTest:
		return fmt.Errorf("kind %q is neither %q nor %q", i.Kind, KindImage, KindTest)
	case !slices.Contains(arches, i.Arch):
		return fmt.Errorf("architecture %q is none of %s", i.Arch, strings.Join(arches, ", "))
	case i.Name == "" || i.Version == "":
		return errors.New("name or version is empty")
	case i.Landlock < 1:
		return fmt.Errorf("landlock_abi %d promises nothing", i.Landlock)
	case i.Errata < 0 || i.Errata > maxErrata:
		return fmt.Errorf("landlock_errata %d is no set of errata", i.Errata)
	case i.Apps == nil || i.Toolchain == nil:
		return errors.New("apps or toolchain is missing")
	case i.Kernel.File == i.Root.File:
		return fmt.Errorf("kernel and root are the same file %q", i.Root.File)
	}
	if err := i.Kernel.validate(); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	if err := i.Root.validate(); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return validateApps(i.Apps)
}

func (a Artifact) validate() error {
	if a.File == "" || a.File == File || a.File == DigestFile || path.Base(a.File) != a.File || strings.HasPrefix(a.File, ".") {
		return fmt.Errorf("%q is not a file beside the index", a.File)
	}
	if err := checkHex(a.SHA256, sha256.Size); err != nil {
		return fmt.Errorf("sha256: %w", err)
	}
	if a.Size < 1 || a.Size > MaxArtifact {
		return fmt.Errorf("size %d is not between 1 and %d", a.Size, int64(MaxArtifact))
	}
	return nil
}

func (r Root) validate() error {
	if err := r.Artifact.validate(); err != nil {
		return err
	}
	if r.DataSize < BlockSize || r.DataSize%BlockSize != 0 || r.DataSize >= r.Size || r.Size%BlockSize != 0 {
		return fmt.Errorf("data_size %d and size %d are not whole blocks with a hash tree after the data", r.DataSize, r.Size)
	}
	if err := checkHex(r.VerityRoot, sha256.Size); err != nil {
		return fmt.Errorf("verity_root: %w", err)
	}
	if err := checkHex(r.VeritySalt, sha256.Size); err != nil {
		return fmt.Errorf("verity_salt: %w", err)
	}
	return nil
}

func validateApps(apps []App) error {
	for n, a := range apps {
		if a.Name == "" || a.Version == "" {
			return fmt.Errorf("app %d: name or version is empty", n)
		}
		if n > 0 && apps[n-1].Name >= a.Name {
			return fmt.Errorf("app %q: not sorted by name, or named twice", a.Name)
		}
		digest, ok := strings.CutPrefix(a.Code, "sha256:")
		if !ok {
			return fmt.Errorf("app %q: code %q has not the form sha256:<hex>", a.Name, a.Code)
		}
		if err := checkHex(digest, sha256.Size); err != nil {
			return fmt.Errorf("app %q: code: %w", a.Name, err)
		}
	}
	return nil
}

// checkHex accepts exactly size bytes in lower-case hex.
func checkHex(s string, size int) error {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != size || s != strings.ToLower(s) {
		return fmt.Errorf("%.80q is not %d bytes of lower-case hex", s, size)
	}
	return nil
}

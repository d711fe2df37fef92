// Package imagetest owns small image folders for tests that need an image but
// not the image.
package imagetest

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/release/index"
)

// Write makes an image folder whose root file system holds what is in root. Its
// kernel is not one and its hash tree is empty.
func Write(t testing.TB, dir string, root fs.FS) {
	t.Helper()
	rootFile := filepath.Join(dir, "root.img")
	f, err := os.Create(rootFile)
	must(t, err)
	w := erofs.Create(f)
	must(t, w.CopyFrom(root))
	must(t, w.Close())
	end, err := f.Seek(0, 2)
	must(t, err)
	data := (end + index.BlockSize - 1) / index.BlockSize * index.BlockSize
	must(t, f.Truncate(data+index.BlockSize))
	must(t, f.Close())
	must(t, os.WriteFile(filepath.Join(dir, "vmlinux"), []byte("not a kernel"), 0o644))
	idx := index.Index{
		Schema: index.Schema, Kind: index.KindImage, Name: "base", Arch: image.HostArch(), Version: index.Unreleased,
		Kernel:   Artifact(t, dir, "vmlinux"),
		Root:     index.Root{Artifact: Artifact(t, dir, "root.img"), DataSize: data, VerityRoot: zeros, VeritySalt: zeros},
		Landlock: 11, Apps: []index.App{}, Toolchain: map[string]string{},
	}
	WriteIndex(t, dir, idx)
}

var zeros = strings.Repeat("0", 2*sha256.Size)

// WriteIndex writes an index and the digest beside it.
func WriteIndex(t testing.TB, dir string, idx index.Index) {
	t.Helper()
	raw, err := idx.Encode()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, index.File), raw, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, index.DigestFile), []byte(index.DigestLine(index.Digest(raw))), 0o644))
}

// Artifact describes a file as it is.
func Artifact(t testing.TB, dir, name string) index.Artifact {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	sum := sha256.Sum256(raw)
	return index.Artifact{File: name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(raw))}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

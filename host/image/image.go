// Package image owns the host's image folder: it finds it, checks it, and hands
// out exactly the bytes that it checked.
package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/release/index"
)

// Options says what Open accepts. The zero value is what berth uses for apps.
type Options struct {
	Arch      string // "": this machine's
	AllowTest bool   // tests only: accept the image whose enforcer can be ablated
}

// Image is an image folder whose index was checked. Its artifacts are checked
// each time that Kernel or Root is called.
type Image struct {
	Index  index.Index
	Digest string // hex sha256 of the index
	Dir    string // symlinks resolved
	Source string // where the trust comes from
}

// Open reads and checks the index of the folder at l.
func Open(l Location, o Options) (*Image, error) {
	d, err := openFolder(l.Dir)
	if err != nil {
		return nil, err
	}
	defer d.close()
	raw, digest, err := d.readIndex(l.Digest)
	if err != nil {
		return nil, err
	}
	idx, err := index.Parse(raw)
	if err != nil {
		return nil, hint.Errorf("this berth and this image are of different versions: build both again with `make build image`", "cannot use image %s: %w", d.path, err)
	}
	if err := usable(idx, o); err != nil {
		return nil, err
	}
	return &Image{Index: idx, Digest: digest, Dir: d.path, Source: l.Source}, nil
}

// readIndex returns the bytes of the index once they have the digest that
// pinned names, or else the one that lies beside it.
func (d *folder) readIndex(pinned string) ([]byte, string, error) {
	line, err := d.read(index.DigestFile, 256)
	if err != nil {
		return nil, "", incomplete(d, err)
	}
	raw, err := d.read(index.File, index.MaxBytes)
	if err != nil {
		return nil, "", incomplete(d, err)
	}
	got := index.Digest(raw)
	beside, ok := strings.CutSuffix(string(line), index.DigestLine(""))
	if !ok || !hexDigest.MatchString(beside) {
		return nil, "", incomplete(d, fmt.Errorf("%s is not one line of sha256sum", index.DigestFile))
	}
	for _, want := range []string{beside, pinned} {
		if want != "" && want != got {
			return nil, "", hint.Errorf("the image was changed after it was built: make image", "%w",
				&index.MismatchError{File: filepath.Join(d.path, index.File), Want: want, Got: got})
		}
	}
	return raw, got, nil
}

func incomplete(d *folder, err error) error {
	return hint.Errorf("build it again: make image", "cannot read image %s: %w", d.path, err)
}

func usable(idx index.Index, o Options) error {
	if idx.Kind == index.KindTest && !o.AllowTest {
		return hint.Errorf("build the image for apps: make image", "cannot run apps on this image: it is a %s, whose enforcer can be switched off", index.KindTest)
	}
	arch := o.Arch
	if arch == "" {
		arch = HostArch()
	}
	if err := idx.CheckArch(arch); err != nil {
		return hint.Errorf("build one for this machine: make image ARCH="+arch, "%w", err)
	}
	return nil
}

// HostArch is the name that indexes give to this machine's processor.
func HostArch() string {
	if runtime.GOARCH == "amd64" {
		return "x86_64"
	}
	return runtime.GOARCH
}

// Artifacts are sealed in-memory copies of what was verified: nobody, not even
// this process, can change them any more. The caller closes them.
type Artifacts struct {
	Kernel *os.File // nil if it was not asked for
	Root   *os.File
}

// Close gives the memory back.
func (a *Artifacts) Close() {
	for _, f := range []*os.File{a.Kernel, a.Root} {
		if f != nil {
			f.Close()
		}
	}
}

// Seal verifies the root image, and the kernel if asked, against the index
// while copying them, and returns the copies.
func (i *Image) Seal(kernel bool) (*Artifacts, error) {
	d, err := openFolder(i.Dir)
	if err != nil {
		return nil, err
	}
	defer d.close()
	var a Artifacts
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { a.Root, errs[0] = d.seal(i.Index.Root.Artifact) })
	if kernel {
		both.Go(func() { a.Kernel, errs[1] = d.seal(i.Index.Kernel) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		a.Close()
		return nil, damaged(err)
	}
	return &a, nil
}

// Verify checks every artifact without keeping it.
func (i *Image) Verify() error {
	a, err := i.Seal(true)
	if err != nil {
		return err
	}
	a.Close()
	return nil
}

// damaged makes one line with a hint of one or two errors.
func damaged(err error) error {
	msg := strings.ReplaceAll(err.Error(), "\n", "; ")
	return hint.Errorf("the image was changed or cut after it was built: make image", "%w", &joined{msg, err})
}

type joined struct {
	msg string
	err error
}

func (j *joined) Error() string { return j.msg }
func (j *joined) Unwrap() error { return j.err }

package index

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// MismatchError says that a file is not the one that was pinned.
type MismatchError struct {
	File, Want, Got string // hex sha256
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("cannot verify %s: want sha256 %s, got %s", e.File, e.Want, e.Got)
}

// SizeError says that a file has not the pinned size; it was not hashed.
type SizeError struct {
	File      string
	Want, Got int64 // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("cannot verify %s: want %d bytes, got %d", e.File, e.Want, e.Got)
}

// ArchError says that an image is for another processor.
type ArchError struct {
	Want, Got string
}

func (e *ArchError) Error() string {
	return fmt.Sprintf("cannot use image: it is built for %s, this machine needs %s", e.Got, e.Want)
}

// CheckArch refuses an image of another architecture.
func (i Index) CheckArch(arch string) error {
	if i.Arch != arch {
		return &ArchError{Want: arch, Got: i.Arch}
	}
	return nil
}

// Verify checks every artifact in dir against i.
func (i Index) Verify(dir string) error {
	for _, a := range []Artifact{i.Kernel, i.Root.Artifact} {
		f, err := a.Open(dir)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Open returns the verified artifact, at its beginning. Whoever uses the open
// file uses what was hashed even if the name is given to another file.
func (a Artifact) Open(dir string) (*os.File, error) {
	// Not blocking, so that a pipe in place of the file is refused at once.
	f, err := os.OpenFile(filepath.Join(dir, a.File), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open artifact: %w", err)
	}
	err = a.check(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (a Artifact) check(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot verify artifact: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("cannot verify %s: it is not a regular file", f.Name())
	}
	if info.Size() != a.Size {
		return &SizeError{File: f.Name(), Want: a.Size, Got: info.Size()}
	}
	a.File = f.Name() // errors name the whole path
	return a.CopyVerified(io.Discard, f)
}

// CopyVerified copies r to w and fails unless it was exactly the artifact. What
// reached w must not be used after an error.
func (a Artifact) CopyVerified(w io.Writer, r io.Reader) error {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(h, w), io.LimitReader(r, a.Size+1))
	if err != nil {
		return fmt.Errorf("cannot read artifact %s: %w", a.File, err)
	}
	if n != a.Size {
		return &SizeError{File: a.File, Want: a.Size, Got: n}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != a.SHA256 {
		return &MismatchError{File: a.File, Want: a.SHA256, Got: got}
	}
	return nil
}

// DMCreate returns the value of the kernel parameter dm-mod.create= that makes
// /dev/dm-0 from the root image on a block device, with every block checked
// against VerityRoot. A corrupted block stops the kernel: nothing in a guest may
// go on with a part of its root missing.
func (r Root) DMCreate(device string) string {
	blocks := r.DataSize / BlockSize
	return fmt.Sprintf("root,,,ro,0 %d verity 1 %s %s %d %d %d %d sha256 %s %s 1 panic_on_corruption",
		r.DataSize/512, device, device, BlockSize, BlockSize, blocks, blocks, r.VerityRoot, r.VeritySalt)
}

package appimage

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Build writes the image of a folder to w and returns its digest
// ("sha256:<hex>") and size in bytes. Equal content gives equal bytes: entries
// are sorted, owners and times are zero, modes are 0755 or 0644, setuid bits are
// dropped. Devices, sockets, pipes and links that leave the folder are errors.
func Build(w io.Writer, dir string) (digest string, size int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", 0, fmt.Errorf("cannot build app image of %s: %w", dir, err)
	}
	defer root.Close()
	buf := bufio.NewWriterSize(w, 64<<10)
	out := &counter{w: buf, hash: sha256.New(), max: MaxBytes}
	b := builder{root: root, out: out, tar: tar.NewWriter(out)}
	// WalkDir lists each folder sorted by name and follows no link.
	err = fs.WalkDir(root.FS(), ".", b.add)
	if err == nil {
		err = errors.Join(b.tar.Close(), buf.Flush())
	}
	if err != nil {
		return "", 0, fmt.Errorf("cannot build app image of %s: %w", dir, err)
	}
	return digestOf(out.hash), out.n, nil
}

type builder struct {
	root    *os.Root
	out     *counter
	tar     *tar.Writer
	entries int
}

func (b *builder) add(name string, entry fs.DirEntry, err error) error {
	if err != nil || name == "." {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	if b.entries++; b.entries > MaxEntries {
		return fmt.Errorf("more than %d files and folders: %w", MaxEntries, ErrTooLarge)
	}
	switch entry.Type() {
	case fs.ModeDir:
		return b.tar.WriteHeader(header(tar.TypeDir, name, "", modeExec, 0))
	case fs.ModeSymlink:
		return b.link(name)
	case 0:
		return b.file(name)
	}
	return fmt.Errorf("%s is neither a regular file, a folder nor a symbolic link (%s)", name, entry.Type())
}

func (b *builder) link(name string) error {
	target, err := b.root.Readlink(name)
	if err != nil {
		return err
	}
	if err := checkTarget(name, target); err != nil {
		return err
	}
	return b.tar.WriteHeader(header(tar.TypeSymlink, name, target, modeExec, 0))
}

func (b *builder) file(name string) error {
	// Not blocking, in case a pipe took the place of the file since it was listed.
	f, err := b.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s changed while it was read", name)
	}
	if info.Size() > b.out.max-b.out.n {
		return fmt.Errorf("%s has %d bytes: %w", name, info.Size(), ErrTooLarge)
	}
	mode := int64(modeFile)
	if info.Mode()&0o111 != 0 {
		mode = modeExec
	}
	if err := b.tar.WriteHeader(header(tar.TypeReg, name, "", mode, info.Size())); err != nil {
		return err
	}
	n, err := io.Copy(b.tar, f)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != info.Size() {
		return fmt.Errorf("%s changed while it was read", name)
	}
	return err
}

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
	"strings"
)

// Unpack reads an image from r until its end and writes it into the empty folder
// dst. The image may have at most maxBytes bytes and must have the digest want.
// Whatever Build would not have written is refused, and on any error all that
// was written is removed again. No link is followed below dst.
func Unpack(r io.Reader, dst string, want string, maxBytes int64) (err error) {
	if err := checkDigest(want); err != nil {
		return fmt.Errorf("cannot unpack app image: %w", err)
	}
	root, err := openEmpty(dst)
	if err != nil {
		return fmt.Errorf("cannot unpack app image %s: %w", want, err)
	}
	defer root.Close()
	in := &counter{r: bufio.NewReaderSize(r, 64<<10), hash: sha256.New(), max: min(maxBytes, MaxBytes)}
	u := unpacker{root: root, in: in, dirs: map[string]bool{".": true}}
	err = u.all()
	if got := digestOf(in.hash); err == nil && got != want {
		err = fmt.Errorf("%w: got %s", ErrDigest, got)
	}
	if err != nil {
		return fmt.Errorf("cannot unpack app image %s: %w", want, errors.Join(err, u.undo()))
	}
	return nil
}

func openEmpty(dst string) (*os.Root, error) {
	root, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	names, err := firstName(root)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("folder %s is not empty: it holds %q", dst, names[0])
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

func firstName(root *os.Root) ([]string, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

type unpacker struct {
	root    *os.Root
	in      *counter
	dirs    map[string]bool // folders made so far: an entry's parent must be one
	top     []string        // names made directly in dst, for undo
	last    string
	entries int
}

func (u *unpacker) all() error {
	t := tar.NewReader(u.in)
	for {
		end := (u.in.n + blockSize - 1) / blockSize * blockSize
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return u.end(end)
		}
		if err != nil {
			return fmt.Errorf("at byte %d: %w", u.in.n, err)
		}
		if err := u.entry(h, t); err != nil {
			return err
		}
	}
}

// end checks that exactly two empty blocks close the image and nothing follows.
func (u *unpacker) end(lastEntry int64) error {
	if u.in.n != lastEntry+2*blockSize {
		return fmt.Errorf("truncated at byte %d: %w", u.in.n, io.ErrUnexpectedEOF)
	}
	n, err := io.ReadFull(u.in, make([]byte, 1))
	if n != 0 {
		return fmt.Errorf("bytes follow its end at %d: %w", lastEntry+2*blockSize, ErrHostile)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if u.entries++; u.entries > MaxEntries {
		return fmt.Errorf("more than %d entries: %w", MaxEntries, ErrTooLarge)
	}
	if h.Size > u.in.max-u.in.n {
		return fmt.Errorf("%.200q has %d bytes: %w", name, h.Size, ErrTooLarge)
	}
	if err := u.check(name, h); err != nil {
		return fmt.Errorf("%w: %w", err, ErrHostile)
	}
	if parent(name) == "." {
		u.top = append(u.top, name)
	}
	u.last = name
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs[name] = true
		// The mode is set apart because the umask has taken from the first one.
		return errors.Join(u.root.Mkdir(name, modeExec), u.root.Chmod(name, modeExec))
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, name)
	}
	return u.file(name, h, content)
}

// check refuses every header that Build does not write. Strictly rising names
// exclude duplicates; a parent that is a folder made before excludes links.
func (u *unpacker) check(name string, h *tar.Header) error {
	if err := checkName(name); err != nil {
		return err
	}
	if !less(u.last, name) {
		return fmt.Errorf("%q comes after %q", name, u.last)
	}
	if !u.dirs[parent(name)] {
		return fmt.Errorf("%q lies in no folder of the image", name)
	}
	if h.Mode != modeExec && !(h.Mode == modeFile && h.Typeflag == tar.TypeReg) {
		return fmt.Errorf("%q has mode %#o", name, h.Mode)
	}
	if h.Uid|h.Gid != 0 || h.Uname+h.Gname != "" || h.ModTime.Unix() != 0 || h.Devmajor|h.Devminor != 0 {
		return fmt.Errorf("%q has an owner, a time or a device number", name)
	}
	if h.Format&(tar.FormatUSTAR|tar.FormatPAX) == 0 {
		return fmt.Errorf("%q has a header in the format %s", name, h.Format)
	}
	for key := range h.PAXRecords {
		if key != "path" && key != "linkpath" {
			return fmt.Errorf("%q has the extended header %q", name, key)
		}
	}
	return checkKind(name, h)
}

func checkKind(name string, h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeSymlink:
		if h.Size != 0 {
			return fmt.Errorf("link %q has content", name)
		}
		return checkTarget(name, h.Linkname)
	case tar.TypeDir, tar.TypeReg:
		if h.Linkname != "" || h.Size < 0 || h.Typeflag == tar.TypeDir && h.Size != 0 {
			return fmt.Errorf("%q has a link target or a wrong size", name)
		}
		return nil
	}
	return fmt.Errorf("%q is neither a regular file, a folder nor a symbolic link (type %q)", name, h.Typeflag)
}

func (u *unpacker) file(name string, h *tar.Header, content io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(fs.FileMode(h.Mode)), f.Close())
}

// undo removes what was written. A name may be missing: it was to come next.
func (u *unpacker) undo() error {
	var errs []error
	for _, name := range u.top {
		errs = append(errs, u.root.RemoveAll(name))
	}
	return errors.Join(errs...)
}

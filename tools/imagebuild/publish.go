package imagebuild

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/release/index"
)

// publish replaces the folder out by one that holds files (names there, sources
// here), in one step: whoever opens it finds the old image or the new one. It
// does nothing if out already is the image with that index digest.
func publish(out, digest string, files map[string]string) (changed bool, err error) {
	if i, have, err := index.Read(out); err == nil && have == digest && i.Verify(out) == nil {
		return false, nil
	}
	if err := replaceable(out); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return false, fmt.Errorf("cannot write image: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return false, fmt.Errorf("cannot write image: %w", err)
	}
	defer os.RemoveAll(tmp) // after the exchange: what was there before
	if err := os.Chmod(tmp, 0o755); err != nil {
		return false, fmt.Errorf("cannot write image: %w", err)
	}
	for name, source := range files {
		if err := copyFile(filepath.Join(tmp, name), source); err != nil {
			return false, explain(fmt.Errorf("cannot write image: %w", err))
		}
	}
	i, _, err := index.Read(tmp)
	if err == nil {
		err = i.Verify(tmp)
	}
	if err != nil {
		return false, err
	}
	return true, swap(tmp, out)
}

func explain(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return hint.Errorf("make room, or choose other folders with -o, BERTH_CACHE and TMPDIR", "%w", err)
	}
	return err
}

// replaceable refuses to replace a folder that is no image.
func replaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot replace image: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(out, index.File)); err != nil {
		return fmt.Errorf("cannot replace %s: it holds other files than an image", out)
	}
	return nil
}

// swap gives tmp the name out. An old folder gets the name tmp.
func swap(tmp, out string) error {
	err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, out, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		err = os.Rename(tmp, out)
	}
	if err != nil {
		return fmt.Errorf("cannot replace image %s: %w", out, err)
	}
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	// Whatever the umask is: who builds as root may run berth as another user.
	return errors.Join(err, out.Chmod(0o644), out.Close())
}

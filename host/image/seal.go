package image

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/release/index"
)

// seal copies an artifact into memory while hashing it, and returns the copy
// sealed, so that what was verified is what is booted.
func (d *folder) seal(a index.Artifact) (*os.File, error) {
	f, size, err := d.open(a.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size != a.Size {
		return nil, &index.SizeError{File: f.Name(), Want: a.Size, Got: size}
	}
	fd, err := unix.MemfdCreate("berth-"+a.File, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot make memory for %s: %w", f.Name(), err)
	}
	mem := os.NewFile(uintptr(fd), "memfd:"+a.File)
	defer mem.Close()
	if err := fill(mem, f, a); err != nil {
		return nil, err
	}
	// QEMU takes a descriptor for reading only if it cannot write.
	sealed, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot reopen copy of %s: %w", f.Name(), err)
	}
	return sealed, nil
}

func fill(mem, f *os.File, a index.Artifact) error {
	if err := a.CopyVerified(mem, f); err != nil {
		return named(err, f.Name())
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(mem.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("cannot seal copy of %s: %w", f.Name(), err)
	}
	return nil
}

// named puts the whole path into the errors of package index.
func named(err error, path string) error {
	switch e := err.(type) {
	case *index.MismatchError:
		return &index.MismatchError{File: path, Want: e.Want, Got: e.Got}
	case *index.SizeError:
		return &index.SizeError{File: path, Want: e.Want, Got: e.Got}
	}
	return err
}

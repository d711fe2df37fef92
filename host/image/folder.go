package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
)

// folder is an image folder that was checked; files are opened relative to it.
type folder struct {
	path    string // symlinks resolved
	dir     *os.File
	trusted map[uint32]bool
}

// openFolder opens dir and refuses it, or any folder on the way to it, if
// somebody could change it who can not change berth itself.
func openFolder(dir string) (*folder, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open image folder: %w", err)
	}
	trusted, err := trustedOwners()
	if err != nil {
		return nil, err
	}
	for at := real; ; at = filepath.Dir(at) {
		if err := checkFolder(at, trusted); err != nil {
			return nil, err
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	f, err := os.OpenFile(real, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open image folder: %w", err)
	}
	return &folder{path: real, dir: f, trusted: trusted}, nil
}

func (d *folder) close() { d.dir.Close() }

// trustedOwners are root, whoever runs berth, and whoever owns the program:
// they can replace berth and so need no image to take it over.
func trustedOwners() (map[uint32]bool, error) {
	owners := map[uint32]bool{0: true, uint32(os.Geteuid()): true}
	exe, err := ownPath()
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(exe, &st); err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", exe, err)
	}
	owners[st.Uid] = true
	return owners, nil
}

func checkFolder(dir string, trusted map[uint32]bool) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("cannot open image folder %s: not a folder", dir)
	}
	if !trusted[st.Uid] {
		return hint.Errorf("build the image as the user who runs berth", "cannot trust image folder %s: it belongs to uid %d", dir, st.Uid)
	}
	if st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return hint.Errorf("chmod o-w "+dir, "cannot trust image folder %s: everybody may write to it", dir)
	}
	return nil
}

// open opens one regular file of the folder, without following a symlink. Who
// owns it or may write to it could give it another content, and the index and
// its digest with it.
func (d *folder) open(name string) (*os.File, int64, error) {
	path := filepath.Join(d.path, name)
	fd, err := unix.Openat(int(d.dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, fmt.Errorf("cannot open %s: it is a symlink", path)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cannot open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if err := d.checkFile(path, st); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size, nil
}

func (d *folder) checkFile(path string, st unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("cannot open %s: not a regular file", path)
	case !d.trusted[st.Uid]:
		return fmt.Errorf("cannot trust %s: it belongs to uid %d", path, st.Uid)
	case st.Mode&0o002 != 0:
		return fmt.Errorf("cannot trust %s: everybody may write to it", path)
	}
	return nil
}

// read returns a file of at most limit bytes.
func (d *folder) read(name string, limit int64) ([]byte, error) {
	f, size, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, fmt.Errorf("cannot read %s: %d bytes, at most %d are read", f.Name(), size, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

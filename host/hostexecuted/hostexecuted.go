// Package hostexecuted owns the user's own changes to the list of names that
// programs of this host execute: which more are protected in shared folders,
// and which are not.
package hostexecuted

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/userdir"
)

// File returns where the user's list is.
func File() (string, error) {
	dir, err := userdir.Config.Dir()
	return filepath.Join(dir, "host-executed.yml"), err
}

// Load returns the names that are protected: the default list of host/files,
// changed as the user's file says. A file that is not there changes nothing.
func Load() ([]string, error) {
	name, err := File()
	if err != nil {
		return nil, err
	}
	raw, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return files.HostExecutedNames(), nil
	}
	if err != nil {
		return nil, err
	}
	return apply(name, raw)
}

// apply is what a list with these bytes comes to.
func apply(name string, raw []byte) ([]string, error) {
	all := files.HostExecutedNames()
	list, err := manifest.ParseNameList(name, raw, func(n string, remove bool) error {
		err := files.CheckHostExecuted(n)
		known := slices.Contains(all, n)
		switch {
		case err != nil:
			return err
		case remove && n == files.ManifestName:
			return fmt.Errorf("%s cannot be removed: whoever writes it says what an app may do", n)
		case remove && !known:
			return fmt.Errorf("%q is not on the list, which docs/host-executed.md has", n)
		case !remove && known:
			return fmt.Errorf("%q is on the list anyway", n)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all = files.WithoutNames(all, names(list.Remove))
	return append(all, names(list.Add)...), nil
}

func names(list []manifest.ListedName) (out []string) {
	for _, e := range list {
		out = append(out, e.Name)
	}
	return out
}

// read reads the file if nobody but the user, or root, can have written it.
func read(name string) ([]byte, error) {
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	defer dir.Close()
	if err := trusted(dir); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(name), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, hint.Errorf("put the file itself there", "cannot read %s: it is a symbolic link", name)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "cannot read", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := trusted(f); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1)) // the parser refuses what is longer
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return raw, nil
}

func trusted(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	kind := st.Mode & unix.S_IFMT
	switch me := uint32(os.Geteuid()); {
	case kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return hint.Errorf("move it away", "cannot read %s: it is no file", f.Name())
	case st.Uid != me && st.Uid != 0:
		return hint.Errorf("move it away", "cannot trust %s: it belongs to uid %d, and you are uid %d", f.Name(), st.Uid, me)
	case st.Mode&0o022 != 0:
		return hint.Errorf(fmt.Sprintf("chmod go-w %q", f.Name()), "cannot trust %s: other users may write to it (mode %04o)", f.Name(), st.Mode&0o7777)
	}
	return nil
}

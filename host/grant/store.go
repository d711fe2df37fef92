package grant

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/userdir"
	"github.com/berthos/berth/init/policy"
)

// store is the folder of grants, opened and locked.
type store struct {
	dir  *os.File
	path string
	lock *os.File
}

// openStore opens the folder of grants, which it makes if create is set; without,
// a missing one is nil. Nothing on the way below the configuration folder may
// be a link or belong to another user: who writes there says what apps may do.
func openStore(create bool) (*store, error) {
	base, err := userdir.Config.Dir()
	if err != nil {
		return nil, err
	}
	const advice = "set XDG_CONFIG_HOME to a folder of your own"
	if create {
		if err := os.MkdirAll(filepath.Dir(base), 0o700); err != nil {
			return nil, hint.Errorf(advice, "cannot record what apps may do: %w", err)
		}
	}
	at, name := unix.AT_FDCWD, ""
	for _, step := range []string{base, "grants"} {
		name = filepath.Join(name, step)
		fd, err := stepInto(at, step, name, create)
		if at != unix.AT_FDCWD {
			unix.Close(at)
		}
		if errors.Is(err, unix.ENOENT) && !create {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		at = fd
	}
	s := &store{dir: os.NewFile(uintptr(at), name), path: name}
	if err := s.acquire(create); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// stepInto opens the folder name in at without following a link, and checks
// whose it is.
func stepInto(at int, name, path string, create bool) (int, error) {
	if create {
		if err := unix.Mkdirat(at, name, 0o700); err != nil && err != unix.EEXIST {
			return -1, hint.Errorf("set XDG_CONFIG_HOME to a folder of your own", "cannot record what apps may do: cannot make %s: %w", path, err)
		}
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return -1, hint.Errorf("move it away; berth makes the folder itself", "cannot use %s: it is a symbolic link or no folder", path)
	}
	if err == nil {
		if err = trusted(fd, path, unix.S_IFDIR); err != nil {
			unix.Close(fd)
		}
		return fd, err
	}
	return -1, fmt.Errorf("cannot open %s: %w", path, err)
}

// trusted makes sure that only the user can have written what fd is.
func trusted(fd int, path string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	switch me, mode := os.Geteuid(), uint32(st.Mode); {
	case mode&unix.S_IFMT != kind:
		return hint.Errorf("move it away", "cannot use %s: it is not what berth made there", path)
	case st.Uid != uint32(me):
		return hint.Errorf("move it away, or set XDG_CONFIG_HOME to a folder of your own", "cannot trust %s: it belongs to uid %d, and you are uid %d", path, st.Uid, me)
	case mode&0o022 != 0:
		return hint.Errorf("chmod go-w "+quote(path), "cannot trust %s: other users may write to it (mode %04o)", path, mode&0o7777)
	}
	return nil
}

// acquire waits for other berths that read or write grants. Readers do not
// need to: a file is always replaced as a whole.
func (s *store) acquire(create bool) error {
	if !create {
		return nil
	}
	fd, err := unix.Openat(int(s.dir.Fd()), ".lock", unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return hint.Errorf("set XDG_CONFIG_HOME to a folder that can be written", "cannot lock %s: %w", s.path, err)
	}
	s.lock = os.NewFile(uintptr(fd), ".lock")
	for {
		err := unix.Flock(fd, unix.LOCK_EX)
		if err == nil || !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *store) close() {
	if s.lock != nil {
		s.lock.Close()
	}
	s.dir.Close()
}

func (s *store) file(app string) string { return filepath.Join(s.path, app+".yml") }

// read returns an app's grants; none is an empty list.
func (s *store) read(app string) (manifest.Grants, error) {
	none := manifest.Grants{App: app}
	if strings.ContainsAny(app, "/\x00") || strings.HasPrefix(app, ".") || app == "" {
		return none, fmt.Errorf("cannot keep a grant of app %q: it is not an app's name", app)
	}
	path := s.file(app)
	fd, err := unix.Openat(int(s.dir.Fd()), app+".yml", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return none, nil
	case errors.Is(err, unix.ELOOP):
		return none, hint.Errorf("put a file in its place", "cannot use %s: it is a symbolic link", path)
	case err != nil:
		return none, fmt.Errorf("cannot read %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := trusted(fd, path, unix.S_IFREG); err != nil {
		return none, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return none, fmt.Errorf("cannot read %s: %w", path, err)
	}
	list, err := manifest.ParseGrants(path, raw)
	if err != nil {
		return none, err
	}
	if list.App != app {
		return none, fmt.Errorf("cannot use %s: it is of app %q", path, list.App)
	}
	return list, nil
}

// put replaces an app's file as a whole: who reads it sees the former or the
// new one.
func (s *store) put(list manifest.Grants, folder string, p policy.Policy, n Narrowing) error {
	g, err := entry(folder, p, n)
	if err != nil {
		return err
	}
	if at := index(list, folder); at >= 0 {
		list.Folders[at] = g
	} else {
		list.Folders = append(list.Folders, g)
	}
	raw, err := render(list)
	if err != nil {
		return err
	}
	if err := s.replace(p.App+".yml", raw); err != nil {
		return hint.Errorf("make room, or set XDG_CONFIG_HOME to a folder that can be written", "cannot record what app %q may do: %w", p.App, err)
	}
	return nil
}

func (s *store) replace(name string, raw []byte) error {
	dir, temporary := int(s.dir.Fd()), ".new-"+rand.Text()
	fd, err := unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make a file in %s: %w", s.path, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(s.path, temporary))
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = unix.Renameat(dir, temporary, dir, name); err == nil {
			return s.dir.Sync()
		}
		err = fmt.Errorf("cannot replace %s: %w", filepath.Join(s.path, name), err)
	}
	return errors.Join(err, unix.Unlinkat(dir, temporary, 0))
}

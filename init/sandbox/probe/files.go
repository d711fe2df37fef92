package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// outside are the layers between an app and a folder that was not granted: it
// is not there, and Landlock would refuse it.
var outside = []Layer{{hide}, {landlock}}

var denied = []syscall.Errno{unix.EACCES, unix.ENOENT, unix.EXDEV, unix.EPERM}

func out(w World, id, name string) string { return filepath.Join(w.Out, id, name) }
func in(w World, id, name string) string  { return filepath.Join(w.Write, id, name) }
func ro(w World, id, name string) string  { return filepath.Join(w.Read, id, name) }

// contents are attacks on files of a folder of the same share that was not
// granted.
func contents() []Probe {
	return []Probe{
		{ID: "FS-01w", What: "write to a file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return overwrite(out(w, id, "f"), unix.O_WRONLY)
		}},
		{ID: "FS-01r", What: "read a file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			raw, err := os.ReadFile(out(w, id, "f"))
			return effect(err, len(raw) > 0)
		}},
		{ID: "FS-02d", What: "open a folder outside by handle, then a file in it", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughHandle(filepath.Join(w.Out, id), "f")
		}},
		{ID: "FS-02f", What: "open a file outside by handle, then again through /proc", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return reopen(out(w, id, "f"))
		}},
		{ID: "FS-03t", What: "truncate a file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return effect(unix.Truncate(out(w, id, "f"), 0), sizeOf(out(w, id, "f")) == 0)
		}},
		{ID: "FS-03o", What: "truncate a file outside by opening it", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return openClose(out(w, id, "f"), unix.O_RDONLY|unix.O_TRUNC)
		}},
		{ID: "FS-04c", What: "create a file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return overwrite(out(w, id, "new"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
		}},
		{ID: "FS-04m", What: "make a folder outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Mkdir(out(w, id, "newdir"), 0o755)
		}},
		{ID: "FS-04u", What: "unlink a file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Unlink(out(w, id, "f"))
		}},
		{ID: "FS-04r", What: "remove a folder outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Rmdir(out(w, id, "d"))
		}},
		{ID: "FS-04p", What: "make a pipe outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Mkfifo(out(w, id, "pipe"), 0o644)
		}},
		{ID: "FS-04t", What: "make an unnamed file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return openClose(filepath.Join(w.Out, id), unix.O_TMPFILE|unix.O_WRONLY)
		}},
	}
}

// detours are the same by other ways than the plain path.
func detours() []Probe {
	return []Probe{
		{ID: "FS-05l", What: "write through an own symlink that leads outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughLink(out(w, id, "f"), in(w, id, "link"), "", unix.O_WRONLY)
		}},
		{ID: "FS-05d", What: "create through a symlinked folder", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughLink(filepath.Join(w.Out, id), in(w, id, "linkdir"), "made", unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "FS-05n", What: "create through a dangling symlink", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughLink(out(w, id, "nothing"), in(w, id, "dangling"), "", unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "FS-06", What: "link a file from outside into a granted folder", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Link(out(w, id, "f"), in(w, id, "hard"))
		}},
		{ID: "FS-07o", What: "move a granted file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Rename(in(w, id, "f"), out(w, id, "moved"))
		}},
		{ID: "FS-07i", What: "move a file from outside in", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Rename(out(w, id, "f"), in(w, id, "moved"))
		}},
		{ID: "FS-07x", What: "exchange a granted file with one outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return unix.Renameat2(unix.AT_FDCWD, in(w, id, "f"), unix.AT_FDCWD, out(w, id, "f"), unix.RENAME_EXCHANGE)
		}},
		{ID: "FS-09r", What: "go through /proc/self/root", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return overwrite("/proc/self/root"+out(w, id, "f"), unix.O_WRONLY)
		}},
		{ID: "FS-09c", What: "enter a folder outside, then go through /proc/thread-self/cwd", Layers: outside, Want: denied, Run: enterAndWrite},
		{ID: "FS-10", What: "climb out of a granted folder with ..", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return climb(w, id)
		}},
		{ID: "FS-12", What: "link an unnamed file outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			return linkUnnamed(filepath.Join(w.Write, id), out(w, id, "linked"))
		}},
	}
}

// names are attacks that learn what there is, and on folders that nothing but
// Landlock protects.
func names() []Probe {
	return []Probe{
		{ID: "FS-17", What: "stat a file outside", Layers: []Layer{{hide}}, Want: denied, Run: func(w World, id string) error {
			var st unix.Stat_t
			return effect(unix.Stat(out(w, id, "f"), &st), st.Size > 0)
		}},
		{ID: "FS-18", What: "list a folder outside", Layers: outside, Want: denied, Run: func(w World, id string) error {
			list, err := os.ReadDir(filepath.Join(w.Out, id))
			return effect(err, len(list) > 0)
		}},
		{ID: "FS-18p", What: "list the folder around the granted ones", Layers: []Layer{{landlock}}, Want: denied, Run: func(w World, id string) error {
			list, err := os.ReadDir(filepath.Dir(w.Write))
			return effect(err, len(list) > 0)
		}},
		{ID: "FS-19i", What: "watch a folder outside", Layers: []Layer{{hide}}, Want: denied, Run: func(w World, id string) error {
			return watch(filepath.Join(w.Out, id))
		}},
		{ID: "CN-01", What: "write to a file that only Landlock protects", Layers: []Layer{{landlock}}, Want: []syscall.Errno{unix.EACCES}, Run: func(w World, _ string) error {
			return overwrite(filepath.Join(w.Canary, "canary"), unix.O_WRONLY)
		}},
		{ID: "CN-02", What: "create in a folder that only Landlock protects", Layers: []Layer{{landlock}}, Want: []syscall.Errno{unix.EACCES}, Run: func(w World, id string) error {
			return overwrite(filepath.Join(w.Canary, id), unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "CN-03", What: "create in /tmp without a grant", Layers: []Layer{{landlock}}, Want: []syscall.Errno{unix.EACCES}, Run: func(_ World, id string) error {
			return overwrite("/tmp/"+id, unix.O_CREAT|unix.O_WRONLY)
		}},
	}
}

// overwrite writes to a file and reads the effect back by its size.
func overwrite(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, []byte("overwritten by a probe\n"))
	return effect(err, n > 0 && sizeOf(name) >= int64(n))
}

func openClose(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func sizeOf(name string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return -1
	}
	return st.Size
}

func throughHandle(dir, name string) error {
	handle, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(handle)
	fd, err := unix.Openat(handle, name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func reopen(name string) error {
	handle, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(handle)
	return openClose("/proc/self/fd/"+itoa(handle), unix.O_RDWR)
}

// throughLink makes a symlink at link to target and writes through it.
func throughLink(target, link, name string, flags int) error {
	if err := unix.Symlink(target, link); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return overwrite(filepath.Join(link, name), flags)
}

func enterAndWrite(w World, id string) error {
	if err := unix.Chdir(filepath.Join(w.Out, id)); err != nil {
		return err
	}
	defer unix.Chdir("/")
	return overwrite("/proc/thread-self/cwd/f", unix.O_WRONLY)
}

func climb(w World, id string) error {
	dir, err := unix.Open(filepath.Join(w.Write, id, "d"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	defer unix.Close(dir)
	up := strings.Repeat("../", 2+strings.Count(w.Write, "/"))
	fd, err := unix.Openat(dir, up+strings.TrimPrefix(filepath.Join(w.Out, id, "f"), "/"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func linkUnnamed(dir, to string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+itoa(fd), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

func watch(dir string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS)
	return err
}

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

// cwd stands for the working folder in calls that take a folder.
const cwd = ^uintptr(99) // AT_FDCWD

func out(w World, id, name string) string { return filepath.Join(w.Out, id, name) }
func in(w World, id, name string) string  { return filepath.Join(w.Write, id, name) }
func ro(w World, id, name string) string  { return filepath.Join(w.Read, id, name) }

// contents are attacks on files of a folder of the same share that was not
// granted.
func contents() []Probe {
	return []Probe{
		{ID: "FS-01w", What: "write to a file outside", Blocks: []string{"fs.write_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return overwrite(out(w, id, "f"), unix.O_WRONLY)
		}},
		{ID: "FS-01r", What: "read a file outside", Blocks: []string{"fs.read_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			raw, err := os.ReadFile(out(w, id, "f"))
			return effect(err, len(raw) > 0)
		}},
		{ID: "FS-02d", What: "open a folder outside by handle, then a file in it", Blocks: []string{"fs.read_file", "fs.write_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughHandle(filepath.Join(w.Out, id), "f")
		}},
		{ID: "FS-02f", What: "open a file outside by handle, then again through /proc", Blocks: []string{"fs.read_file", "fs.write_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return reopen(out(w, id, "f"))
		}},
		{ID: "FS-03t", What: "truncate a file outside", Blocks: []string{"fs.truncate"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return effect(unix.Truncate(out(w, id, "f"), 0), sizeOf(out(w, id, "f")) == 0)
		}},
		{ID: "FS-03o", What: "truncate a file outside by opening it", Blocks: []string{"fs.truncate", "fs.read_file"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_OPENAT, cwd, 0, unix.O_RDONLY|unix.O_TRUNC|unix.O_CLOEXEC).onPaths(map[int]string{1: out(w, id, "f")})
		}},
		{ID: "FS-04c", What: "create a file outside", Blocks: []string{"fs.make_reg"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return overwrite(out(w, id, "new"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
		}},
		{ID: "FS-04m", What: "make a folder outside", Blocks: []string{"fs.make_dir"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_MKDIRAT, cwd, 0, 0o755).onPaths(map[int]string{1: out(w, id, "newdir")})
		}},
		{ID: "FS-04u", What: "unlink a file outside", Blocks: []string{"fs.remove_file"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_UNLINKAT, cwd, 0, 0).onPaths(map[int]string{1: out(w, id, "f")})
		}},
		{ID: "FS-04r", What: "remove a folder outside", Blocks: []string{"fs.remove_dir"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_UNLINKAT, cwd, 0, unix.AT_REMOVEDIR).onPaths(map[int]string{1: out(w, id, "d")})
		}},
		{ID: "FS-04p", What: "make a pipe outside", Blocks: []string{"fs.make_fifo"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_MKNODAT, cwd, 0, unix.S_IFIFO|0o644, 0).onPaths(map[int]string{1: out(w, id, "pipe")})
		}},
		{ID: "FS-04t", What: "make an unnamed file outside", Absent: []syscall.Errno{unix.EOPNOTSUPP}, Blocks: []string{"fs.write_file", "fs.make_reg"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_OPENAT, cwd, 0, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600).onPaths(map[int]string{1: filepath.Join(w.Out, id)})
		}},
	}
}

// detours are the same by other ways than the plain path.
func detours() []Probe {
	return []Probe{
		{ID: "FS-05l", What: "write through an own symlink that leads outside", Blocks: []string{"fs.write_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughLink(out(w, id, "f"), in(w, id, "link"), "", unix.O_WRONLY)
		}},
		{ID: "FS-05d", What: "create through a symlinked folder", Blocks: []string{"fs.make_reg"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughLink(filepath.Join(w.Out, id), in(w, id, "linkdir"), "made", unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "FS-05n", What: "create through a dangling symlink", Blocks: []string{"fs.make_reg"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return throughLink(out(w, id, "nothing"), in(w, id, "dangling"), "", unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "FS-06", What: "link a file from outside into a granted folder", Blocks: []string{"fs.refer"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_LINKAT, cwd, 0, cwd, 0, 0).onPaths(map[int]string{1: out(w, id, "f"), 3: in(w, id, "hard")})
		}},
		{ID: "FS-07o", What: "move a granted file outside", Blocks: []string{"fs.make_reg", "fs.refer"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_RENAMEAT2, cwd, 0, cwd, 0, 0).onPaths(map[int]string{1: in(w, id, "f"), 3: out(w, id, "moved")})
		}},
		{ID: "FS-07i", What: "move a file from outside in", Blocks: []string{"fs.remove_file", "fs.refer"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_RENAMEAT2, cwd, 0, cwd, 0, 0).onPaths(map[int]string{1: out(w, id, "f"), 3: in(w, id, "moved")})
		}},
		{ID: "FS-07x", What: "exchange a granted file with one outside", Blocks: []string{"fs.remove_file", "fs.make_reg", "fs.refer"}, Layers: outside, Want: denied, Raw: func(w World, id string) Call {
			return system(unix.SYS_RENAMEAT2, cwd, 0, cwd, 0, unix.RENAME_EXCHANGE).onPaths(map[int]string{1: in(w, id, "f"), 3: out(w, id, "f")})
		}},
		{ID: "FS-09r", What: "go through /proc/self/root", Blocks: []string{"fs.write_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return overwrite("/proc/self/root"+out(w, id, "f"), unix.O_WRONLY)
		}},
		{ID: "FS-09c", What: "enter a folder outside, then go through /proc/thread-self/cwd", Blocks: []string{"fs.write_file"}, Layers: outside, Want: denied, Run: enterAndWrite},
		{ID: "FS-10", What: "climb out of a granted folder with ..", Blocks: []string{"fs.write_file"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			return climb(w, id)
		}},
		{ID: "FS-12", What: "link an unnamed file outside", Absent: []syscall.Errno{unix.EOPNOTSUPP}, Blocks: []string{"fs.refer", "fs.make_reg"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
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
		{ID: "FS-18", What: "list a folder outside", Blocks: []string{"fs.read_dir"}, Layers: outside, Want: denied, Run: func(w World, id string) error {
			list, err := os.ReadDir(filepath.Join(w.Out, id))
			return effect(err, len(list) > 0)
		}},
		{ID: "FS-18p", What: "list the folder around the granted ones", Blocks: []string{"fs.read_dir"}, On: "/workspace", Layers: []Layer{{landlock}}, Want: denied, Run: func(w World, id string) error {
			list, err := os.ReadDir(filepath.Dir(w.Write))
			return effect(err, len(list) > 0)
		}},
		{ID: "FS-19i", What: "watch a folder outside", Layers: []Layer{{hide}}, Want: denied, Run: func(w World, id string) error {
			return watch(filepath.Join(w.Out, id))
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

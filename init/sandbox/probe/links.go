package probe

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// links are attacks that give a file another name, or a path another file.
func links(w World) []Probe {
	linked := func(id, what, block string, run func(World, string) error) Probe {
		return Probe{ID: id, What: what, Layers: outside, Want: denied, Blocks: []string{block, "fs.refer"}, Run: run}
	}
	socketLayers := outside
	if w.ABI < 9 { // seccomp refuses the socket itself
		socketLayers = append(socketLayers[:2:2], Layer{seccomp})
	}
	return []Probe{
		{ID: "FS-04s", What: "make a symlink outside", Layers: outside, Want: denied, Blocks: []string{"fs.make_sym"}, Raw: func(w World, id string) Call {
			return system(unix.SYS_SYMLINKAT, 0, cwd, 0).onPaths(map[int]string{0: "nowhere", 2: out(w, id, "symlink")})
		}},
		{ID: "FS-04k", What: "make a socket outside", Layers: socketLayers, Want: denied, Blocks: []string{"fs.make_sock"}, Run: func(w World, id string) error {
			return bindSocket(out(w, id, "own"))
		}},
		linked("FS-06r", "link a file of a read scope into a write scope", "fs.refer", func(w World, id string) error {
			return unix.Link(ro(w, id, "f"), in(w, id, "hard"))
		}),
		linked("FS-06d", "link an open file of a read scope by its descriptor", "fs.refer", func(w World, id string) error {
			fd, err := unix.Open(ro(w, id, "f"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return errors.Join(errSetUp, err)
			}
			defer unix.Close(fd)
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+itoa(fd), unix.AT_FDCWD, in(w, id, "hard"), unix.AT_SYMLINK_FOLLOW)
		}),
		linked("FS-07r", "move a file of a read scope into a write scope", "fs.remove_file", func(w World, id string) error {
			return unix.Rename(ro(w, id, "f"), in(w, id, "moved"))
		}),
		linked("FS-07w", "move a file over one of a read scope", "fs.make_reg", func(w World, id string) error {
			return unix.Rename(in(w, id, "f"), ro(w, id, "f"))
		}),
		linked("FS-07d", "move a folder outside", "fs.make_dir", func(w World, id string) error {
			return unix.Rename(in(w, id, "d"), out(w, id, "moved"))
		}),
		{ID: "FS-26", What: "win a race: a link swaps between an own file and one outside while it is opened", Layers: outside, Want: denied, Blocks: []string{"fs.write_file"}, Run: race},
	}
}

// Swaps are how often the link changes while it is opened. Without a sandbox the
// first few win.
const (
	swaps = 200
	opens = 1 << 20 // however the two threads take turns
)

// race opens a link for writing while another thread points it elsewhere. It
// succeeds if one open got the file outside.
func race(w World, id string) error {
	own, other, link := in(w, id, "f"), out(w, id, "f"), in(w, id, "swapped")
	var swapped atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			err := errors.Join(unix.Symlink([]string{own, other}[n%2], link+".new"), unix.Rename(link+".new", link))
			swapped.Add(1)
			if err != nil {
				return
			}
		}
	}()
	refused, times := errors.Join(errSetUp, errNoEffect), 0
	for opened := 0; opened < opens && (times == 0 || swapped.Load() < swaps); opened++ {
		select {
		case <-stopped:
			return refused
		default:
		}
		began := swapped.Load() > 0 // before that there is no link
		fd, err := unix.Open(link, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			if began {
				refused, times = err, times+1
			}
			continue
		}
		name, err := os.Readlink("/proc/self/fd/" + itoa(fd))
		if err == nil && name == other {
			_, err = unix.Write(fd, []byte("overwritten by a probe\n"))
			return errors.Join(err, unix.Close(fd))
		}
		unix.Close(fd)
	}
	return refused
}

// bindSocket makes a socket file.
func bindSocket(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return err
	}
	var st unix.Stat_t
	return effect(unix.Lstat(name, &st), st.Mode&unix.S_IFMT == unix.S_IFSOCK)
}

// canaries are attacks on a folder that is there and that the app's uid may
// write to: nothing but Landlock protects it.
func canaries() []Probe {
	landlocked := func(id, what, block string, run func(World, string) error) Probe {
		return Probe{ID: id, What: what, Layers: []Layer{{landlock}}, Want: []syscall.Errno{unix.EACCES, unix.EXDEV}, Blocks: []string{block}, On: "canary", Run: run}
	}
	file := func(w World) string { return filepath.Join(w.Canary, "canary") }
	return []Probe{
		landlocked("CN-01", "write to a file that only Landlock protects", "fs.write_file", func(w World, _ string) error { return overwrite(file(w), unix.O_WRONLY) }),
		landlocked("CN-02", "create a file beside it", "fs.make_reg", func(w World, id string) error {
			return overwrite(filepath.Join(w.Canary, id), unix.O_CREAT|unix.O_WRONLY)
		}),
		{ID: "CN-03", What: "create in /tmp without a grant", Layers: []Layer{{landlock}}, Want: []syscall.Errno{unix.EACCES}, Blocks: []string{"fs.make_reg"}, On: "/tmp", Harm: "a host's /tmp is everybody's", Run: func(_ World, id string) error {
			name := "/tmp/" + id
			defer unix.Unlink(name)
			return overwrite(name, unix.O_CREAT|unix.O_WRONLY)
		}},
		landlocked("CN-04", "read it", "fs.read_file", func(w World, _ string) error { return openClose(file(w), unix.O_RDONLY) }),
		landlocked("CN-05", "truncate it", "fs.truncate", func(w World, _ string) error { return unix.Truncate(file(w), 0) }),
		landlocked("CN-06", "rename it", "fs.remove_file", func(w World, _ string) error {
			return errors.Join(unix.Rename(file(w), file(w)+".moved"), back(unix.Rename(file(w)+".moved", file(w))))
		}),
		landlocked("CN-07", "link it", "fs.make_reg", func(w World, id string) error {
			return errors.Join(unix.Link(file(w), filepath.Join(w.Canary, id)), back(unix.Unlink(filepath.Join(w.Canary, id))))
		}),
		landlocked("CN-08", "unlink it", "fs.remove_file", func(w World, _ string) error {
			if err := unix.Unlink(file(w)); err != nil {
				return err
			}
			return os.WriteFile(file(w), nil, 0o666)
		}),
		landlocked("CN-09", "make a pipe beside it", "fs.make_fifo", func(w World, id string) error { return unix.Mkfifo(filepath.Join(w.Canary, id), 0o600) }),
		landlocked("CN-10", "make a folder beside it", "fs.make_dir", func(w World, id string) error { return unix.Mkdir(filepath.Join(w.Canary, id), 0o700) }),
		landlocked("CN-11", "make a symlink beside it", "fs.make_sym", func(w World, id string) error { return unix.Symlink("/", filepath.Join(w.Canary, id)) }),
		landlocked("CN-12", "make an unnamed file there", "fs.write_file", func(w World, _ string) error { return openClose(w.Canary, unix.O_TMPFILE|unix.O_WRONLY) }),
		landlocked("CN-13", "list its folder", "fs.read_dir", func(w World, _ string) error {
			list, err := os.ReadDir(w.Canary)
			return effect(err, len(list) > 0)
		}),
		landlocked("CN-14", "write to it through an O_PATH descriptor", "fs.write_file", func(w World, _ string) error {
			handle, err := unix.Open(file(w), unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return errors.Join(errSetUp, err)
			}
			defer unix.Close(handle)
			return openClose("/proc/self/fd/"+itoa(handle), unix.O_WRONLY)
		}),
	}
}

// back leaves out that the way back was not needed.
func back(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// throughDescriptor connects to a socket whose path is a descriptor of it.
func throughDescriptor(name string) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	defer unix.Close(fd)
	return connectSocket("/proc/self/fd/" + itoa(fd))
}

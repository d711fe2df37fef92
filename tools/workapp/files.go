package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// files is work on names: what editors, version control and installers do.
func files() []piece {
	return []piece{
		{"rename", renames}, {"lock-file", lockFiles}, {"links", links}, {"small-files", smallFiles}, {"deep-tree", deepTree},
		{"names", names}, {"attributes", attributes}, {"xattrs", xattrs}, {"temporary", temporary}, {"special", special},
		{"watch", watch}, {"list", listing},
	}
}

const v9fsMagic = 0x01021997

// shared reports whether dir is on a file system that is served over the link,
// which can do less than one of a disk: that is no refusal, and programs ask.
func shared(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == v9fsMagic
}

// unsupported accepts err if it says that a shared file system can not do this.
func (w *world) unsupported(err error) bool {
	return shared(w.dir) && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL))
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func write(name, content string) error { return os.WriteFile(name, []byte(content), 0o644) }

// holds checks a file's content.
func holds(name, want string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if string(raw) != want {
		return mismatch(filepath.Base(name), raw, want)
	}
	return nil
}

func absent(name string) error {
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is still there: %v", filepath.Base(name), err)
	}
	return nil
}

// renames moves files and folders within and between folders, also such that
// were made just now, over what is there, and both ways at once.
func renames(w *world) error {
	if err := errors.Join(os.MkdirAll(w.path("d1/sub"), 0o755), os.MkdirAll(w.path("d2"), 0o755), write(w.path("d1/f"), "1"),
		write(w.path("d1/sub/g"), "2"), write(w.path("d2/old"), "3")); err != nil {
		return err
	}
	err := each(
		step{"file to another folder", func() error {
			return errors.Join(os.Rename(w.path("d1/f"), w.path("d2/f")), holds(w.path("d2/f"), "1"), absent(w.path("d1/f")))
		}},
		step{"folder to another folder", func() error {
			return errors.Join(os.Rename(w.path("d1/sub"), w.path("d2/moved")), holds(w.path("d2/moved/g"), "2"))
		}},
		step{"over a file", func() error {
			return errors.Join(os.Rename(w.path("d2/f"), w.path("d2/old")), holds(w.path("d2/old"), "1"))
		}},
		step{"over an empty folder", func() error {
			return errors.Join(os.Mkdir(w.path("d1/empty"), 0o755), unix.Rename(w.path("d2/moved"), w.path("d1/empty")), holds(w.path("d1/empty/g"), "2"))
		}},
		step{"upwards", func() error {
			return errors.Join(os.Rename(w.path("d1/empty/g"), w.path("g")), holds(w.path("g"), "2"))
		}},
	)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		flags uint
	}{{"without replacing", unix.RENAME_NOREPLACE}, {"exchange", unix.RENAME_EXCHANGE}} {
		if err := errors.Join(write(w.path("d1/x"), "x"), write(w.path("d2/y"), "y")); err != nil {
			return err
		}
		to := w.path("d2/new")
		if c.flags == unix.RENAME_EXCHANGE {
			to = w.path("d2/y")
		}
		err := unix.Renameat2(unix.AT_FDCWD, w.path("d1/x"), unix.AT_FDCWD, to, c.flags)
		if err != nil && !w.unsupported(err) {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err == nil {
			if err := holds(to, "x"); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// lockFiles changes a file as git does: a lock made exclusively, written, synced
// and renamed over the file.
func lockFiles(w *world) error {
	name := w.path("config")
	for i := range w.many(100) {
		lock, err := os.OpenFile(name+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if _, err := os.OpenFile(name+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); !errors.Is(err, fs.ErrExist) {
			return mismatch("a second lock", err, fs.ErrExist)
		}
		want := fmt.Sprint("version ", i)
		if _, err := lock.WriteString(want); err != nil {
			return err
		}
		if err := errors.Join(lock.Sync(), lock.Close(), os.Rename(name+".lock", name), holds(name, want)); err != nil {
			return err
		}
	}
	return absent(name + ".lock")
}

func links(w *world) error {
	if err := errors.Join(os.MkdirAll(w.path("a/b"), 0o755), write(w.path("f"), "content")); err != nil {
		return err
	}
	return each(
		step{"hard link in another folder", func() error {
			if err := os.Link(w.path("f"), w.path("a/b/hard")); err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Stat(w.path("f"), &st); err != nil {
				return err
			}
			if st.Nlink != 2 {
				return mismatch("links", st.Nlink, 2)
			}
			return errors.Join(os.Remove(w.path("f")), holds(w.path("a/b/hard"), "content"), os.Rename(w.path("a/b/hard"), w.path("f")))
		}},
		step{"relative symlink", func() error {
			return errors.Join(os.Symlink("../../f", w.path("a/b/soft")), holds(w.path("a/b/soft"), "content"))
		}},
		step{"absolute symlink", func() error {
			return errors.Join(os.Symlink(w.path("f"), w.path("abs")), holds(w.path("abs"), "content"))
		}},
		step{"writing through a symlink", func() error {
			return errors.Join(write(w.path("a/b/soft"), "changed"), holds(w.path("f"), "changed"))
		}},
		step{"making through a symlink", func() error {
			return errors.Join(os.Symlink("made", w.path("to-made")), write(w.path("to-made"), "new"), holds(w.path("made"), "new"))
		}},
		step{"symlink to a folder", func() error {
			return errors.Join(os.Symlink("a", w.path("to-a")), holds(w.path("to-a/b/soft"), "changed"))
		}},
		step{"dangling symlink", func() error {
			if err := os.Symlink("nothing", w.path("dangling")); err != nil {
				return err
			}
			to, err := os.Readlink(w.path("dangling"))
			if err == nil && to != "nothing" {
				err = mismatch("link", to, "nothing")
			}
			return errors.Join(err, os.Rename(w.path("dangling"), w.path("a/dangling")), os.Remove(w.path("a/dangling")))
		}},
	)
}

// smallFiles makes, reads, changes and removes thousands of files.
func smallFiles(w *world) error {
	n := w.many(2000)
	name := func(i int) string { return w.path(fmt.Sprintf("d%02d", i%20), fmt.Sprintf("f%05d", i)) }
	for i := range min(n, 20) {
		if err := os.Mkdir(filepath.Dir(name(i)), 0o755); err != nil {
			return err
		}
	}
	for i := range n {
		if err := write(name(i), fmt.Sprint(i)); err != nil {
			return err
		}
	}
	found := 0
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		_, err = d.Info()
		return err
	})
	if err != nil {
		return err
	}
	if found != n {
		return mismatch("files", found, n)
	}
	for i := range n {
		if err := holds(name(i), fmt.Sprint(i)); err != nil {
			return err
		}
		if i%3 == 0 {
			if err := os.Rename(name(i), name(i)+".done"); err != nil {
				return err
			}
		}
	}
	return nil
}

// deepTree makes folders inside folders, and works at the bottom by names
// relative to it, as paths get too long.
func deepTree(w *world) error {
	depth := w.many(200)
	at, err := unix.Open(w.dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for range depth {
		if err := unix.Mkdirat(at, "deeper-and-deeper", 0o755); err != nil {
			unix.Close(at)
			return err
		}
		next, err := unix.Openat(at, "deeper-and-deeper", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			return err
		}
		at = next
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, "bottom", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte("reached")); err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.Open(strings.Repeat("deeper-and-deeper/", min(depth, 100)))
	if err != nil {
		return err
	}
	return f.Close()
}

// names are such as people and programs give.
func names(w *world) error {
	want := []string{
		"space in name", "-rf", "--", "#", "$(HOME)", "`x`", "a'b\"c", "back\\slash", "new\nline", "tab\t", "semi;colon", "*", "?",
		"ünïcödé", "日本語", "e\u0301", "\u00e9", "🙂", "\u202etxt", ".hidden", "..dots", "trailing.", "trailing ", "con", "nul:",
		strings.Repeat("n", 255), strings.Repeat("ü", 127), "\xff\xfe", "a\x01b", ".gitignore", ".env.example", "UPPER", "upper",
	}
	for _, n := range want {
		if err := write(w.path(n), n); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	sort.Strings(want)
	if strings.Join(got, "/") != strings.Join(want, "/") {
		return mismatch("names", got, want)
	}
	for i, n := range want {
		if err := errors.Join(holds(w.path(n), n), os.Rename(w.path(n), w.path(fmt.Sprint("plain", i))), os.Rename(w.path(fmt.Sprint("plain", i)), w.path(n))); err != nil {
			return err
		}
	}
	return nil
}

// attributes changes modes, times, sizes and owners, as far as an owner may.
func attributes(w *world) error {
	f, d := w.path("f"), w.path("d")
	if err := errors.Join(write(f, "12345"), os.Mkdir(d, 0o755)); err != nil {
		return err
	}
	for _, mode := range []fs.FileMode{0o600, 0o644, 0o755, 0o400, 0o666, 0o640} {
		if err := os.Chmod(f, mode); err != nil {
			return err
		}
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		if info.Mode() != mode {
			return mismatch("mode", info.Mode(), mode)
		}
	}
	open, err := os.OpenFile(f, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer open.Close()
	when := time.Unix(1_500_000_000, 0)
	return each(
		step{"fchmod", func() error { return open.Chmod(0o644) }},
		step{"sticky folder", func() error { return os.Chmod(d, 0o755|fs.ModeSticky) }},
		step{"folder nobody may read, and back", func() error { return errors.Join(os.Chmod(d, 0), os.Chmod(d, 0o700)) }},
		step{"utimes", func() error {
			if err := errors.Join(os.Chtimes(f, when, when), os.Chtimes(d, when, when)); err != nil {
				return err
			}
			info, err := os.Stat(f)
			if err == nil && !info.ModTime().Equal(when) {
				err = mismatch("time", info.ModTime(), when)
			}
			return err
		}},
		step{"touch", func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, f, nil, 0) }},
		step{"truncate", func() error {
			return errors.Join(os.Truncate(f, 2), holds(f, "12"), open.Truncate(4), holds(f, "12\x00\x00"))
		}},
		step{"truncate at open", func() error { return errors.Join(write(f, "new"), holds(f, "new")) }},
		step{"chown to oneself", func() error { return errors.Join(os.Chown(f, os.Getuid(), os.Getgid()), os.Lchown(f, -1, -1)) }},
		step{"access", func() error {
			return errors.Join(unix.Access(f, unix.R_OK|unix.W_OK), unix.Faccessat2(unix.AT_FDCWD, d, unix.X_OK, unix.AT_EACCESS))
		}},
		step{"statx", func() error {
			var st unix.Statx_t
			if err := unix.Statx(unix.AT_FDCWD, f, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
				return err
			}
			if st.Size != 3 {
				return mismatch("size", st.Size, 3)
			}
			return nil
		}},
		step{"statfs", func() error { var st unix.Statfs_t; return unix.Statfs(w.dir, &st) }},
		step{"umask", func() error {
			unix.Umask(unix.Umask(0o022))
			return nil
		}},
	)
}

// xattrs are asked for by cp, tar and rsync; where there are none, they say so.
func xattrs(w *world) error {
	f := w.path("f")
	if err := write(f, "x"); err != nil {
		return err
	}
	switch err := unix.Setxattr(f, "user.note", []byte("value"), 0); {
	case errors.Is(err, unix.EOPNOTSUPP): // the file system has none
	case err != nil:
		return fmt.Errorf("setxattr: %w", err)
	default:
		got := make([]byte, 64)
		n, err := unix.Getxattr(f, "user.note", got)
		if err != nil || string(got[:n]) != "value" {
			return fmt.Errorf("getxattr: %q, %v", got[:max(n, 0)], err)
		}
		if n, err = unix.Listxattr(f, got); err != nil || !bytes.Contains(got[:n], []byte("user.note")) {
			return fmt.Errorf("listxattr: %q, %v", got[:max(n, 0)], err)
		}
		if err := unix.Removexattr(f, "user.note"); err != nil {
			return fmt.Errorf("removexattr: %w", err)
		}
	}
	for _, name := range []string{"system.posix_acl_access", "security.capability", "user.none"} {
		if _, err := unix.Getxattr(f, name, make([]byte, 64)); !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
			return mismatch("getxattr "+name, err, unix.ENODATA)
		}
	}
	return nil
}

// temporary files: with names, without any, unlinked while open.
func temporary(w *world) error {
	return each(
		step{"mkstemp", func() error {
			f, err := os.CreateTemp(w.dir, "tmp-*")
			if err != nil {
				return err
			}
			defer f.Close()
			return errors.Join(f.Chmod(0o644), os.Rename(f.Name(), w.path("kept")))
		}},
		step{"unlinked while open", func() error {
			f, err := os.OpenFile(w.path("gone"), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := os.Remove(f.Name()); err != nil {
				return err
			}
			got := make([]byte, 5)
			if _, err := f.WriteString("still"); err != nil {
				return err
			}
			if _, err := f.ReadAt(got, 0); err != nil || string(got) != "still" {
				return fmt.Errorf("read %q, %v", got, err)
			}
			return nil
		}},
		step{"without a name, then named", func() error {
			fd, err := unix.Open(w.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
			if w.unsupported(err) {
				return nil
			}
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if _, err := unix.Write(fd, []byte("named late")); err != nil {
				return err
			}
			if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), unix.AT_FDCWD, w.path("late"), unix.AT_SYMLINK_FOLLOW); err != nil {
				return fmt.Errorf("linkat: %w", err)
			}
			return holds(w.path("late"), "named late")
		}},
		step{"TMPDIR", func() error {
			dir, err := os.MkdirTemp("", "x")
			if err != nil {
				return err
			}
			return os.RemoveAll(dir)
		}},
		step{"HOME", func() error {
			home, err := os.UserHomeDir()
			if err != nil {
				return err
			}
			name := filepath.Join(home, ".cache/x/y")
			return errors.Join(os.MkdirAll(name, 0o755), os.RemoveAll(filepath.Dir(name)))
		}},
	)
}

// special files of the app's own: pipes with names, and the standard devices.
func special(w *world) error {
	return each(
		step{"fifo", func() error {
			name := w.path("fifo")
			err := unix.Mkfifo(name, 0o600)
			if shared(w.dir) && err != nil { // never in a shared folder: see host/files
				return nil
			}
			if err != nil {
				return err
			}
			said := make(chan error, 1)
			go func() { said <- write(name, "through") }()
			return errors.Join(holds(name, "through"), <-said)
		}},
		step{"devices", func() error {
			for name, read := range map[string]int{"null": 0, "zero": 8, "urandom": 8, "random": 8, "full": 8} {
				f, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
				if err != nil {
					return err
				}
				got := make([]byte, 8)
				n, _ := f.Read(got)
				_, err = f.WriteString("x")
				f.Close()
				if n != read || (err != nil) != (name == "full") {
					return fmt.Errorf("/dev/%s: read %d bytes, write: %v", name, n, err)
				}
			}
			return nil
		}},
		step{"/dev/fd", func() error {
			r, wr, err := os.Pipe()
			if err != nil {
				return err
			}
			defer r.Close()
			defer wr.Close()
			again, err := os.OpenFile(fmt.Sprint("/dev/fd/", wr.Fd()), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			if _, err := again.WriteString("again"); err != nil {
				return err
			}
			got := make([]byte, 5)
			_, err = r.Read(got)
			return errors.Join(err, again.Close())
		}},
		step{"own file by descriptor", func() error {
			f, err := os.Create(w.path("f"))
			if err != nil {
				return err
			}
			defer f.Close()
			return errors.Join(write(fmt.Sprint("/proc/self/fd/", f.Fd()), "by number"), holds(w.path("f"), "by number"))
		}},
		step{"/proc/self", func() error {
			for _, name := range []string{"status", "stat", "maps", "cmdline", "environ", "exe", "limits", "mountinfo", "comm", "fd", "task", "cgroup", "oom_score_adj"} {
				f, err := os.Open("/proc/self/" + name)
				if err != nil {
					return err
				}
				f.Close()
			}
			return nil
		}},
		step{"/etc", func() error {
			for _, name := range []string{"passwd", "group", "hosts", "nsswitch.conf"} {
				if _, err := os.ReadFile("/etc/" + name); err != nil {
					return err
				}
			}
			return nil
		}},
	)
}

// watch sees what it does itself. In a folder that is served over the link
// there is nothing to see: see the README.
func watch(w *world) error {
	if shared(w.dir) {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, w.dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE); err != nil {
		return err
	}
	if err := errors.Join(write(w.path("one"), "1"), os.Rename(w.path("one"), w.path("two"))); err != nil {
		return err
	}
	seen, buf := "", make([]byte, 4096)
	for !strings.Contains(seen, "two") {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return err
		}
		seen += string(buf[:n])
	}
	if !strings.Contains(seen, "one") {
		return mismatch("events", seen, "one and two")
	}
	return nil
}

// listing reads folders that change meanwhile, and goes into them.
func listing(w *world) error {
	n := w.many(1000)
	for i := range n {
		if err := write(w.path(fmt.Sprint(i)), ""); err != nil {
			return err
		}
	}
	d, err := os.Open(w.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	found := 0
	for {
		names, err := d.Readdirnames(50)
		for _, name := range names {
			found++
			if err := os.Remove(w.path(name)); err != nil {
				return err
			}
		}
		if err != nil {
			break
		}
	}
	if found != n {
		return mismatch("entries", found, n)
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Chdir(w.dir); err != nil {
		return err
	}
	err = errors.Join(write("relative", "1"), holds(w.path("relative"), "1"))
	return errors.Join(err, os.Chdir(here))
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// contents is work on what is in files: what databases, linkers and copiers do.
func contents() []piece {
	return []piece{
		{"mmap", mappings}, {"sync", syncs}, {"allocate", allocate}, {"positions", positions}, {"append", appends},
		{"copy", copies}, {"splice", splices}, {"flock", flocks}, {"record-locks", recordLocks},
	}
}

// mappings are shared with other mappings, with read and write, and private.
func mappings(w *world) error {
	f, err := os.OpenFile(w.path("f"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	const size = 1 << 20
	if err := f.Truncate(size); err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("shared: %w", err)
	}
	defer unix.Munmap(m)
	for i := range 256 {
		m[i*4096] = byte(i)
	}
	if err := errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Madvise(m, unix.MADV_WILLNEED)); err != nil {
		return err
	}
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, m) {
		return errors.New("what was mapped is not what is read")
	}
	private, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("private: %w", err)
	}
	defer unix.Munmap(private)
	private[1] = 7
	if m[1] != 0 {
		return errors.New("a private change is seen by others")
	}
	return each(
		step{"read only", func() error {
			ro, err := os.Open(f.Name())
			if err != nil {
				return err
			}
			defer ro.Close()
			m, err := unix.Mmap(int(ro.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			return unix.Munmap(m)
		}},
		step{"own program, executable", func() error {
			exe, err := os.Open("/proc/self/exe")
			if err != nil {
				return err
			}
			defer exe.Close()
			m, err := unix.Mmap(int(exe.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
			if err != nil {
				return err
			}
			return unix.Munmap(m)
		}},
		step{"code made at run time", func() error { // as JIT compilers do
			m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return err
			}
			return errors.Join(unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC), unix.Munmap(m))
		}},
		step{"between processes", func() error { return between(w, f.Name(), m) }},
	)
}

// between has a child change a shared mapping.
func between(w *world, name string, m []byte) error {
	if out, err := exec.CommandContext(w, self, "child", "map", name).CombinedOutput(); err != nil {
		return fmt.Errorf("child: %w: %s", err, out)
	}
	if m[17] != 99 {
		return mismatch("byte 17", m[17], 99)
	}
	return nil
}

func syncs(w *world) error {
	for i := range w.many(50) {
		f, err := os.Create(w.path(fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if _, err := f.WriteString("durable"); err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), unix.Fdatasync(int(f.Fd())), f.Close()); err != nil {
			return err
		}
	}
	d, err := os.Open(w.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func allocate(w *world) error {
	f, err := os.Create(w.path("f"))
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := unix.Fallocate(fd, 0, 0, 1<<20); err != nil && !w.unsupported(err) {
		return fmt.Errorf("fallocate: %w", err)
	}
	for _, mode := range []uint32{unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE} {
		if err := unix.Fallocate(fd, mode, 0, 4096); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("fallocate %#x: %w", mode, err)
		}
	}
	if err := f.Truncate(1 << 30); err != nil { // sparse
		return err
	}
	if _, err := f.WriteAt([]byte("end"), 1<<30-3); err != nil {
		return err
	}
	at, err := unix.Seek(fd, 0, unix.SEEK_DATA)
	if err != nil {
		return fmt.Errorf("seek for data: %w", err)
	}
	if at < 0 || at > 1<<30-3 {
		return mismatch("first data", at, "before the end")
	}
	return unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL)
}

// positions reads and writes at positions, in several pieces, from many threads.
func positions(w *world) error {
	f, err := os.OpenFile(w.path("f"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			for k := range w.many(100) {
				if _, errs[i] = f.WriteAt(bytes.Repeat([]byte{byte('a' + i)}, 100), int64((k*len(errs)+i)*100)); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	raw, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	for i, c := range raw {
		if c != byte('a'+i/100%len(errs)) {
			return mismatch(fmt.Sprint("byte ", i), c, 'a'+i/100%len(errs))
		}
	}
	if _, err := unix.Pwritev(int(f.Fd()), [][]byte{[]byte("one"), []byte("two")}, 0); err != nil {
		return fmt.Errorf("pwritev: %w", err)
	}
	a, b := make([]byte, 3), make([]byte, 3)
	if _, err := unix.Preadv(int(f.Fd()), [][]byte{a, b}, 0); err != nil || string(a)+string(b) != "onetwo" {
		return fmt.Errorf("preadv: %q %q, %v", a, b, err)
	}
	return nil
}

// appends from several descriptors at once lose nothing.
func appends(w *world) error {
	n := w.many(50)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	if shared(w.dir) {
		errs = errs[:1] // a client keeps the end of a file for itself: see host/files
	}
	for i := range errs {
		wg.Go(func() {
			f, err := os.OpenFile(w.path("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
			if err != nil {
				errs[i] = err
				return
			}
			defer f.Close()
			for range n {
				if _, err := f.WriteString("one line\n"); err != nil {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	raw, err := os.ReadFile(w.path("log"))
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if got := bytes.Count(raw, []byte("one line\n")); got != n*len(errs) {
		return mismatch("lines", got, n*len(errs))
	}
	return nil
}

// copies moves bytes inside the kernel where it can.
func copies(w *world) error {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	if err := os.WriteFile(w.path("from"), want, 0o644); err != nil {
		return err
	}
	how := map[string]func(dst, src int) (int, error){
		"copy_file_range": func(dst, src int) (int, error) { return unix.CopyFileRange(src, nil, dst, nil, len(want), 0) },
		"sendfile":        func(dst, src int) (int, error) { return unix.Sendfile(dst, src, nil, len(want)) },
		"clone":           func(dst, src int) (int, error) { return len(want), unix.IoctlFileClone(dst, src) },
	}
	for name, do := range how {
		if err := w.copyBy(name, do, want); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	src, err := os.Open(w.path("from"))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(w.path("by-library"))
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close(), holds(w.path("by-library"), string(want)))
}

func (w *world) copyBy(name string, do func(dst, src int) (int, error), want []byte) error {
	src, err := unix.Open(w.path("from"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	dst, err := unix.Open(w.path(name), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	for left := len(want); left > 0; {
		n, err := do(dst, src)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) && name == "clone" {
			return nil // the file system shares no blocks; callers copy
		}
		if err != nil || n == 0 {
			return fmt.Errorf("%d bytes left: %w", left, err)
		}
		left -= n
	}
	return holds(w.path(name), string(want))
}

// splices moves bytes between files and pipes.
func splices(w *world) error {
	if err := write(w.path("from"), "spliced"); err != nil {
		return err
	}
	src, err := os.Open(w.path("from"))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(w.path("to"))
	if err != nil {
		return err
	}
	defer dst.Close()
	var p, q [2]int
	if err := errors.Join(unix.Pipe2(p[:], unix.O_CLOEXEC), unix.Pipe2(q[:], unix.O_CLOEXEC)); err != nil {
		return err
	}
	defer func() {
		for _, fd := range append(p[:], q[:]...) {
			unix.Close(fd)
		}
	}()
	if _, err := unix.Splice(int(src.Fd()), nil, p[1], nil, 7, 0); err != nil {
		return fmt.Errorf("file to pipe: %w", err)
	}
	if _, err := unix.Tee(p[0], q[1], 7, 0); err != nil {
		return fmt.Errorf("tee: %w", err)
	}
	if _, err := unix.Splice(q[0], nil, int(dst.Fd()), nil, 7, 0); err != nil {
		return fmt.Errorf("pipe to file: %w", err)
	}
	if _, err := unix.Vmsplice(q[1], []unix.Iovec{{Base: &[]byte("mem")[0], Len: 3}}, 0); err != nil {
		return fmt.Errorf("vmsplice: %w", err)
	}
	return holds(w.path("to"), "spliced")
}

// flocks are seen by other descriptors and other processes.
func flocks(w *world) error {
	f, err := os.Create(w.path("lock"))
	if err != nil {
		return err
	}
	defer f.Close()
	again, err := os.Open(f.Name())
	if err != nil {
		return err
	}
	defer again.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return mismatch("second lock", err, unix.EWOULDBLOCK)
	}
	if out, err := exec.CommandContext(w, self, "child", "flock", f.Name()).CombinedOutput(); err != nil || string(out) != "held\n" {
		return fmt.Errorf("child: %w: %s", err, out)
	}
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), unix.Flock(int(again.Fd()), unix.LOCK_SH), unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB))
}

// recordLocks are those of SQLite (POSIX) and of newer programs (OFD).
func recordLocks(w *world) error {
	f, err := os.Create(w.path("db"))
	if err != nil {
		return err
	}
	defer f.Close()
	again, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer again.Close()
	lock := func(f *os.File, cmd int, kind int16, start int64) error {
		return unix.FcntlFlock(f.Fd(), cmd, &unix.Flock_t{Type: kind, Start: start, Len: 10})
	}
	return each(
		step{"OFD", func() error {
			if err := lock(f, unix.F_OFD_SETLKW, unix.F_WRLCK, 0); err != nil {
				return err
			}
			if err := lock(again, unix.F_OFD_SETLK, unix.F_WRLCK, 5); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
				return mismatch("overlapping lock", err, unix.EAGAIN)
			}
			return errors.Join(lock(again, unix.F_OFD_SETLK, unix.F_WRLCK, 20), lock(f, unix.F_OFD_SETLK, unix.F_UNLCK, 0), lock(again, unix.F_OFD_SETLK, unix.F_UNLCK, 20))
		}},
		step{"POSIX", func() error {
			if err := lock(f, unix.F_SETLK, unix.F_WRLCK, 0); err != nil {
				return err
			}
			if out, err := exec.CommandContext(w, self, "child", "posix-lock", f.Name()).CombinedOutput(); err != nil || string(out) != "held\n" {
				return fmt.Errorf("child: %w: %s", err, out)
			}
			return lock(f, unix.F_SETLKW, unix.F_UNLCK, 0)
		}},
	)
}

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type bench struct {
	h   *host
	dir string
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) fail(name string, format string, args ...any) {
	fmt.Printf("FAIL %s: %s\n", name, fmt.Sprintf(format, args...))
}

func (b *bench) check(name string, err error) bool {
	if err != nil {
		b.fail(name, "%v", err)
	}
	return err == nil
}

func (b *bench) say(name, value string) { fmt.Printf("%s\t%s\n", name, value) }

func (b *bench) run() {
	for _, f := range []func(){
		b.bulk, b.small, b.latency, b.tree, b.mmap, b.mmapAppend, b.held, b.attrs, b.unlinkOpen,
		b.rename, b.flock, b.posixLock, b.readOnlyCreate, b.landlock, b.append, b.exec,
	} {
		f()
	}
}

const bulkSize = 32 << 20

func (b *bench) bulk() {
	p, chunk := b.path("bulk"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	t := time.Now()
	f, err := os.Create(p)
	if !b.check("bulk", err) {
		return
	}
	for range bulkSize / len(chunk) {
		f.Write(chunk)
	}
	b.check("bulk sync", f.Sync())
	f.Close()
	b.say("write 32 MiB", rate(t, bulkSize))
	t = time.Now()
	f, _ = os.Open(p)
	buf, n := make([]byte, 1<<20), 0
	for {
		got, err := f.Read(buf)
		n += got
		if err != nil {
			break
		}
		if !bytes.Equal(buf[:16], chunk[:16]) {
			b.fail("bulk", "other bytes")
		}
	}
	f.Close()
	if n != bulkSize {
		b.fail("bulk", "%d bytes", n)
	}
	b.say("read 32 MiB", rate(t, bulkSize))
}

func (b *bench) small() {
	const n, size = 512, 4096
	p, chunk := b.path("small"), make([]byte, size)
	t := time.Now()
	f, _ := os.Create(p)
	for range n {
		f.Write(chunk)
	}
	f.Close()
	b.say("write 4 KiB pieces", since(t, n)+" each")
	t = time.Now()
	f, _ = os.Open(p)
	for range n {
		io.ReadFull(f, chunk)
	}
	f.Close()
	b.say("read 4 KiB pieces", since(t, n)+" each")
	t = time.Now()
	for i := range 200 {
		os.WriteFile(b.path(fmt.Sprintf("s%d", i)), chunk, 0o644)
	}
	b.say("create+write+close 4 KiB", since(t, 200))
	t = time.Now()
	for i := range 200 {
		os.ReadFile(b.path(fmt.Sprintf("s%d", i)))
	}
	b.say("open+read+close 4 KiB", since(t, 200))
}

func (b *bench) latency() {
	var fs unix.Statfs_t
	best := time.Hour
	for range 20 {
		t := time.Now()
		for range 20 {
			unix.Statfs(b.dir, &fs)
		}
		best = min(best, time.Since(t)/20)
	}
	b.say("one round trip (statfs), best of 20 batches", best.String())
	os.MkdirAll(b.path("x/y/z"), 0o755)
	os.WriteFile(b.path("x/y/z/f"), nil, 0o644)
	for name, p := range map[string]string{"stat f": "small", "stat x/y/z/f": "x/y/z/f", "stat of what is not there": "x/none"} {
		t := time.Now()
		for range 200 {
			os.Lstat(b.path(p))
		}
		b.say(name, since(t, 200))
	}
}

// tree is what git status does: read every directory, lstat every file.
func (b *bench) tree() {
	for d := range 40 {
		dir := b.path(fmt.Sprintf("tree/d%d", d))
		os.MkdirAll(dir, 0o755)
		b.h.do("fill %s 50", strings.TrimPrefix(dir, b.dir+"/"))
	}
	for _, turn := range []string{"first", "second"} {
		t, n := time.Now(), 0
		dirs, _ := os.ReadDir(b.path("tree"))
		for _, d := range dirs {
			files, _ := os.ReadDir(b.path("tree/" + d.Name()))
			for _, f := range files {
				if _, err := os.Lstat(b.path("tree/" + d.Name() + "/" + f.Name())); err == nil {
					n++
				}
			}
		}
		b.say("walk of 2,000 files, "+turn, fmt.Sprintf("%d ms", time.Since(t).Milliseconds()))
		if n != 2000 {
			b.fail("tree", "%d files", n)
		}
	}
}

func (b *bench) mmap() {
	p := b.path("map")
	os.WriteFile(p, make([]byte, 8192), 0o644)
	f, _ := os.OpenFile(p, os.O_RDWR, 0)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if !b.check("MAP_SHARED", err) {
		return
	}
	copy(m[4090:], "across pages")
	got := make([]byte, 12)
	f.ReadAt(got, 4090)
	if string(got) != "across pages" {
		b.fail("mmap", "read(2) before msync sees %q", got)
	}
	b.check("msync", unix.Msync(m, unix.MS_SYNC))
	b.h.do("expect map 4090 across pages")
	f.WriteAt([]byte("WRITE"), 0)
	if string(m[:5]) != "WRITE" {
		b.fail("mmap", "the mapping does not see write(2): %q", m[:5])
	}
	copy(m[100:], "unmapped")
	b.check("munmap", unix.Munmap(m))
	f.Close()
	b.h.do("expect map 100 unmapped")
	b.h.do("expect map 0 WRITE")
	b.say("MAP_SHARED", "works")
}

// mmapAppend maps a file that another handle appends to.
func (b *bench) mmapAppend() {
	p := b.path("mapa")
	os.WriteFile(p, make([]byte, 4096), 0o644)
	f, _ := os.OpenFile(p, os.O_RDWR|os.O_APPEND, 0)
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if !b.check("mmap append", err) {
		return
	}
	f.Write([]byte("tail"))
	copy(m, "head")
	unix.Munmap(m)
	f.Close()
	got, _ := os.ReadFile(p)
	if len(got) != 4100 || string(got[:4]) != "head" || string(got[4096:]) != "tail" {
		b.fail("mmap append", "%d bytes", len(got))
	}
}

// held is what an editor on the host does to a file that the guest has open.
func (b *bench) held() {
	p := b.path("held")
	os.WriteFile(p, []byte("old content\n"), 0o644)
	f, _ := os.Open(p)
	defer f.Close()
	buf := make([]byte, 100)
	f.ReadAt(buf, 0)
	b.h.do("write held new content!|")
	n, _ := f.ReadAt(buf, 0)
	st, _ := f.Stat()
	other, _ := os.ReadFile(p)
	fresh := string(buf[:n]) == "new content!\n"
	b.say("held open, host wrote in place", fmt.Sprintf("read %v, size %v, opened anew %v", fresh, st.Size() == 13, string(other) == "new content!\n"))
	os.ReadFile(b.path("closed")) // not there: a negative entry
	b.h.do("write closed one")
	one, _ := os.ReadFile(b.path("closed"))
	b.h.do("write closed two!")
	two, _ := os.ReadFile(b.path("closed"))
	st, _ = os.Stat(b.path("closed"))
	b.h.do("remove closed")
	_, err := os.Stat(b.path("closed"))
	b.say("not open, host made, wrote, removed", fmt.Sprintf("%v %v %v %v", string(one) == "one", string(two) == "two!", st != nil && st.Size() == 4, os.IsNotExist(err)))
	b.tail()
}

// tail reads a log that the host appends to.
func (b *bench) tail() {
	p := b.path("log")
	os.WriteFile(p, []byte("1\n"), 0o644)
	f, _ := os.Open(p)
	defer f.Close()
	buf := make([]byte, 100)
	f.Read(buf)
	b.h.do("append log 2|")
	n, _ := f.Read(buf)
	b.say("tail -f of the host's log", fmt.Sprintf("%v (%q)", string(buf[:n]) == "2\n", buf[:n]))
}

func (b *bench) attrs() {
	p := b.path("attrs")
	os.WriteFile(p, []byte("x"), 0o644)
	b.check("chmod", os.Chmod(p, 0o755))
	b.h.do("mode attrs 755")
	b.check("chmod", os.Chmod(p, 0o4755))
	b.h.do("mode attrs 755")
	when := time.Unix(1e9, 0) // the client keeps whole seconds of a time that is set
	b.check("utimes", os.Chtimes(p, when, when))
	st, _ := os.Stat(p)
	if !st.ModTime().Equal(when) {
		b.fail("utimes", "%v", st.ModTime())
	}
	b.check("truncate", os.Truncate(p, 1<<40))
	st, _ = os.Stat(p)
	if st.Size() != 1<<40 {
		b.fail("truncate", "%d", st.Size())
	}
	uid := st.Sys().(*syscall.Stat_t).Uid
	b.say("owner in the guest", fmt.Sprint(uid))
	if err := os.Chown(p, 0, 0); err == nil {
		b.fail("chown", "to root worked")
	}
	if _, err := unix.Getxattr(p, "user.x", nil); err != unix.EOPNOTSUPP {
		b.fail("xattr", "%v", err)
	}
	if err := unix.Mknod(b.path("dev"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err == nil {
		b.fail("mknod", "made a device")
	}
	b.check("symlink", os.Symlink("/etc/passwd", b.path("sym")))
	if s, _ := os.Readlink(b.path("sym")); s != "/etc/passwd" {
		b.fail("symlink", "%q", s)
	}
	b.check("link", os.Link(p, b.path("hard")))
}

func (b *bench) unlinkOpen() {
	p := b.path("gone")
	f, _ := os.Create(p)
	b.check("unlink", os.Remove(p))
	f.Write([]byte("0123456789"))
	b.check("ftruncate of an unlinked file", f.Truncate(4))
	b.check("fchmod of an unlinked file", f.Chmod(0o600))
	st, err := f.Stat()
	if b.check("fstat of an unlinked file", err) && st.Size() != 4 {
		b.fail("unlink", "size %d", st.Size())
	}
	buf := make([]byte, 10)
	if n, _ := f.ReadAt(buf, 0); string(buf[:n]) != "0123" {
		b.fail("unlink", "read %q", buf[:n])
	}
	f.Close()
	b.say("unlinked but open", "works")
}

func (b *bench) rename() {
	os.MkdirAll(b.path("r/a"), 0o755)
	d, _ := os.Open(b.path("r/a"))
	b.check("rename", os.Rename(b.path("r/a"), b.path("r/b")))
	fd, err := unix.Openat(int(d.Fd()), "f", unix.O_CREAT|unix.O_WRONLY, 0o644)
	if b.check("openat of a renamed folder", err) {
		unix.Close(fd)
	}
	d.Close()
	if _, err := os.Stat(b.path("r/b/f")); err != nil {
		b.fail("rename", "%v", err)
	}
	os.WriteFile(b.path("r/x"), []byte("new"), 0o644)
	os.WriteFile(b.path("r/y"), []byte("old"), 0o644)
	b.check("rename over", os.Rename(b.path("r/x"), b.path("r/y")))
	if got, _ := os.ReadFile(b.path("r/y")); string(got) != "new" {
		b.fail("rename over", "%q", got)
	}
	b.say("rename", "works")
}

func (b *bench) exec() {
	b.h.do("program prog")
	c := exec.Command(b.path("prog"))
	c.Args = []string{"child", "hello", "x"}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "hello") {
		b.fail("exec", "%v %q", err, out)
		return
	}
	b.say("a program in the folder", "runs")
}

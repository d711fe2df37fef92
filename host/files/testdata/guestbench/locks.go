//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// child is a second process of the guest.
func child(what string, args []string) int {
	switch what {
	case "bench":
		ctl := openPort(args[0])
		b := &bench{h: &host{w: ctl, r: bufio.NewReader(ctl)}, dir: args[1]}
		b.run()
	case "flock":
		f, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return 2
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return 1
		}
	case "posix":
		f, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return 2
		}
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 10}
		if unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l) != nil {
			return 1
		}
	case "landlock":
		return landlocked(args[0], args[1])
	case "hello":
		fmt.Println("hello")
	}
	return 0
}

func (b *bench) flock() {
	p := b.path("lockf")
	os.WriteFile(p, []byte("0123456789"), 0o644)
	f, _ := os.OpenFile(p, os.O_RDWR, 0)
	b.check("flock", unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	if spawn("flock", p).Run() == nil {
		b.fail("flock", "two processes have it")
	}
	b.h.do("flocked lockf")
	b.check("flock", unix.Flock(int(f.Fd()), unix.LOCK_UN))
	b.check("flock by a child", spawn("flock", p).Run())
	f.Close()
	b.say("flock", "works, also against the host")
}

func (b *bench) posixLock() {
	p := b.path("lockp")
	os.WriteFile(p, []byte("0123456789"), 0o644)
	f, _ := os.OpenFile(p, os.O_RDWR, 0)
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: 5, Len: 5}
	b.check("setlk", unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l))
	if spawn("posix", p).Run() == nil {
		b.fail("posix lock", "two processes have it")
	}
	l = unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 4}
	if b.check("getlk", unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l)) && l.Type != unix.F_UNLCK {
		b.fail("getlk", "type %d", l.Type)
	}
	f.Close()
	b.check("posix lock after close", spawn("posix", p).Run())
	b.say("POSIX locks", "work")
}

// readOnlyCreate is how git writes objects: made with mode 0444, then written.
func (b *bench) readOnlyCreate() {
	fd, err := unix.Open(b.path("object"), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o444)
	if !b.check("create 0444", err) {
		return
	}
	_, err = unix.Write(fd, []byte("blob"))
	b.check("write 0444", err)
	unix.Close(fd)
	b.h.do("expect object 0 blob")
	fd, err = unix.Open(b.path("object2"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o444)
	if b.check("create 0444 write-only", err) {
		_, err = unix.Write(fd, []byte("blob"))
		b.check("write 0444 write-only", err)
		unix.Close(fd)
	}
	b.h.do("expect object2 0 blob")
}

// landlock: a grant on a folder that is a mount of its own outlives dropped caches.
func (b *bench) landlock() {
	for _, how := range []string{"plain", "bind"} {
		sub := b.path("sub-" + how)
		os.MkdirAll(sub, 0o755)
		if how == "bind" {
			b.check("bind", unix.Mount(sub, sub, "", unix.MS_BIND, ""))
		}
		c := spawn("landlock", sub, "/mnt/dropped-"+how)
		out, err := start(c, func() {
			unix.Sync()
			os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
		})
		b.say("Landlock grant after drop_caches, "+how, strings.TrimSpace(strings.TrimPrefix(out, ".")))
		if how == "bind" {
			b.check("landlock", err)
			unix.Unmount(sub, 0)
		}
	}
}

// start runs c, which stops itself with a byte on stdout until it gets one on stdin.
func start(c *exec.Cmd, between func()) (string, error) {
	c.Stdout = nil
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		return "", err
	}
	first := make([]byte, 1)
	out.Read(first)
	between()
	in.Write(first)
	rest, _ := io.ReadAll(out)
	return string(first) + string(rest), c.Wait()
}

func landlocked(dir, _ string) int {
	if err := landlock.V5.RestrictPaths(landlock.RWDirs(dir)); err != nil {
		fmt.Println("restrict:", err)
		return 2
	}
	if err := os.WriteFile(dir+"/a", []byte("x"), 0o644); err != nil {
		fmt.Println("control:", err)
		return 2
	}
	if err := os.WriteFile(dir+"/../beside", []byte("x"), 0o644); err == nil {
		fmt.Println("not enforced")
		return 2
	}
	os.Stdout.Write([]byte("."))
	os.Stdin.Read(make([]byte, 1))
	if err := os.WriteFile(dir+"/b", []byte("x"), 0o644); err != nil {
		fmt.Println("lost:", err)
		return 1
	}
	fmt.Println("holds")
	return 0
}

// append writes at the end of a file that the host lengthens meanwhile.
func (b *bench) append() {
	p := b.path("applog")
	os.WriteFile(p, []byte("1\n"), 0o644)
	f, _ := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
	f.Write([]byte("2\n"))
	b.h.do("append applog 3|")
	f.Write([]byte("4\n"))
	f.Close()
	got, _ := os.ReadFile(p)
	b.say("append by both", fmt.Sprintf("%v (%q)", string(got) == "1\n2\n3\n4\n", got))
}

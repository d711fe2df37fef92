package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type denyIn struct {
	How   string `json:"how,omitempty"` // one of the ways below; else a create
	Path  string `json:"path,omitempty"`
	Times int    `json:"times,omitempty"`
}

// deny does what is refused and keeps the error to itself.
func deny(_ context.Context, in denyIn) (text, error) {
	refused := 0
	for range max(in.Times, 1) {
		if try(in) != nil {
			refused++
		}
	}
	return text{fmt.Sprint(refused)}, nil
}

func try(in denyIn) error {
	switch in.How {
	case "thread":
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocks: a thread of its own
			done <- create(in.Path)
		}()
		return <-done
	case "grandchild":
		return exec.Command("/app/probe", "child", in.Path).Run()
	case "unshare":
		return unix.Unshare(0)
	case "truncate":
		return os.Truncate(in.Path, 0)
	case "nested":
		return nested()
	}
	if do := fileWays[in.How]; do != nil {
		return do(in.Path)
	}
	if do := netWays[in.How]; do != nil {
		return onSocket(do, in.Path)
	}
	return create(in.Path)
}

var fileWays = map[string]func(path string) error{
	"read":    func(path string) error { return opened(path, syscall.O_RDONLY) },
	"write":   func(path string) error { return opened(path, syscall.O_WRONLY) },
	"list":    func(path string) error { return opened(path, syscall.O_RDONLY|syscall.O_DIRECTORY) },
	"mkdir":   func(path string) error { return syscall.Mkdir(path, 0o700) },
	"symlink": func(path string) error { return syscall.Symlink("x", path) },
	"mkfifo":  func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"unlink":  syscall.Unlink,
	"socket": func(path string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	},
}

var netWays = map[string]func(fd int, to unix.Sockaddr) error{
	"connect_tcp": unix.Connect, "connect_udp": unix.Connect, "bind_tcp": unix.Bind, "bind_udp": unix.Bind,
	"send_udp": func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, []byte("x"), 0, to) },
}

// onSocket takes the kind of socket from the way and the port from the path.
func onSocket(do func(int, unix.Sockaddr) error, way string) error {
	kind, port, _ := strings.Cut(way, ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	socket := unix.SOCK_STREAM
	if kind == "udp" {
		socket = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, socket, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
}

func opened(path string, flags int) error {
	fd, err := syscall.Open(path, flags, 0)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

// nested asks for a domain of its own, under which the kernel would log nothing
// by default, and only then is refused something.
func nested() error {
	attr := struct{ fs uint64 }{uint64(unix.LANDLOCK_ACCESS_FS_MAKE_REG)}
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno == 0 {
		_, _, errno = syscall.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	}
	if errno == 0 {
		return nil // it would be mute now
	}
	return create("/tmp/x")
}

func create(path string) error {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_WRONLY, 0o600)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

// descend starts a grandchild, which is refused and ends with 1.
func descend(what, path string) {
	if what == "child" {
		if exec.Command("/app/probe", "grandchild", path).Run() != nil {
			os.Exit(1)
		}
	} else if create(path) != nil {
		os.Exit(1)
	}
}

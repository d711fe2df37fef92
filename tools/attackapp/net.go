package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// netActions prints the answer of one network action each: NAME:PORT.
func netActions(args []string, out io.Writer) int {
	for _, a := range args {
		name, port, _ := strings.Cut(a, ":")
		n, _ := strconv.Atoi(port)
		var errno syscall.Errno
		answer := "ok"
		if err := netAction(name, n); errors.As(err, &errno) {
			answer = unix.ErrnoName(errno)
		} else if err != nil {
			answer = err.Error()
		}
		fmt.Fprintln(out, a, answer)
	}
	return 0
}

// v6 is an IPv6 address with a port: loopback, or IPv4 loopback mapped.
func v6(port int, mapped bool) unix.Sockaddr {
	a := &unix.SockaddrInet6{Port: port}
	a.Addr[15] = 1
	if mapped {
		copy(a.Addr[10:], []byte{0xff, 0xff, 127, 0, 0, 1})
	}
	return a
}

func netAction(name string, port int) error {
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
	switch name {
	case "listen": // stays open, for the actions after it
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, false, func(fd int) error {
			if err := unix.Bind(fd, loopback); err != nil {
				return err
			}
			return unix.Listen(fd, 8)
		})
	case "connect":
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, true, func(fd int) error { return unix.Connect(fd, loopback) })
	case "connect6":
		return withSocket(unix.AF_INET6, unix.SOCK_STREAM, 0, true, func(fd int) error { return unix.Connect(fd, v6(port, false)) })
	case "mapped":
		return withSocket(unix.AF_INET6, unix.SOCK_STREAM, 0, true, func(fd int) error { return unix.Connect(fd, v6(port, true)) })
	case "outside":
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, true, func(fd int) error {
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: port})
		})
	case "fastopen":
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, true, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, loopback)
		})
	case "udp":
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, true, func(fd int) error { return unix.Sendto(fd, []byte("x"), 0, loopback) })
	case "udpbind":
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, true, func(fd int) error { return unix.Bind(fd, loopback) })
	case "udpout":
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, true, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: port})
		})
	case "mptcp":
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, true, func(int) error { return nil })
	case "raw":
		return withSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, true, func(int) error { return nil })
	case "ping":
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, true, func(int) error { return nil })
	case "packet":
		return withSocket(unix.AF_PACKET, unix.SOCK_RAW, 0, true, func(int) error { return nil })
	case "netlink":
		return withSocket(unix.AF_NETLINK, unix.SOCK_RAW, 0, true, func(int) error { return nil })
	case "vsock":
		return withSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, true, func(int) error { return nil })
	}
	return errors.New("unknown action")
}

func withSocket(family, kind, proto int, shut bool, use func(int) error) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	if shut {
		defer unix.Close(fd)
	}
	return use(fd)
}

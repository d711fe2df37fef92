package main

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// unixActions connects to unix sockets and prints what came of each: "ok", or
// the errno's name.
//
//	host:PATH      connect to a stream socket that is there
//	datagram:PATH  send to a datagram socket that is there
//	own:PATH       make one, to which a child process connects
//	pair:          a pair of stream sockets
func unixActions(args []string, out io.Writer) int {
	for _, a := range args {
		answer := "ok"
		if err := unixAction(a); err != nil {
			answer = errnoName(err)
		}
		fmt.Fprintln(out, a, answer)
	}
	return 0
}

func unixAction(a string) error {
	action, name, _ := strings.Cut(a, ":")
	switch action {
	case "host", "datagram":
		return connectTo(action, name)
	case "own":
		l, err := net.Listen("unix", name)
		if err != nil {
			return err
		}
		defer l.Close()
		child, err := exec.Command("/proc/self/exe", "-dial", "host", name).Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, child)
		}
		c, err := l.Accept()
		if err != nil {
			return err
		}
		return c.Close()
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(pair[0])
	return unix.Close(pair[1])
}

func connectTo(action, name string) error {
	network := map[string]string{"host": "unix", "datagram": "unixgram"}[action]
	c, err := net.Dial(network, name)
	if err != nil {
		return err
	}
	defer c.Close()
	if action == "datagram" {
		_, err = c.Write([]byte("by the app"))
	}
	return err
}

func dial(args []string, out io.Writer) int {
	if err := connectTo(args[0], args[1]); err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	return 0
}

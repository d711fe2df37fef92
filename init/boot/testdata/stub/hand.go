package main

import (
	"bufio"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hand is what the stub hands to PID 1 in place of, or on, a connection to
// another app.
type hand struct {
	What  string `json:"what"`  // a connection; or "nothing", "two", "file", "datagram", "listening", "closed"; "release": close those that were kept
	Times int    `json:"times"` // at least once
	Say   string `json:"say"`   // on each connection
	Fill  int    `json:"fill"`  // so many bytes more, without a newline
	Keep  bool   `json:"keep"`  // do not read an answer
	Block bool   `json:"block"` // let the file of the other side block, and keep it
}

var kept []*os.File

// over sends on a descriptor and returns the answers that came, or the error.
func (h hand) over(fd int) (answers []string) {
	if h.What == "release" {
		for _, f := range kept {
			_ = f.Close()
		}
		kept = nil
		return nil
	}
	for range max(h.Times, 1) {
		mine, theirs := h.make()
		if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(theirs...), nil, unix.MSG_NOSIGNAL); err != nil {
			return append(answers, err.Error())
		}
		for _, fd := range theirs {
			if !h.Block {
				_ = unix.Close(fd)
			}
		}
		if mine < 0 {
			continue
		}
		f := os.NewFile(uintptr(mine), "mine")
		if h.Keep {
			go f.WriteString(h.Say + strings.Repeat("x", h.Fill))
			kept = append(kept, f)
			continue
		}
		answers = append(answers, ask(f, h.Say+strings.Repeat("x", h.Fill)))
	}
	return answers
}

func ask(f *os.File, text string) string {
	defer f.Close()
	c, err := net.FileConn(f)
	check(err)
	defer c.Close()
	go c.Write([]byte(text))
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second)) // so that the test ends
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// make returns our end, or -1, and what is sent.
func (h hand) make() (int, []int) {
	kind := unix.SOCK_STREAM
	if h.What == "datagram" {
		kind = unix.SOCK_DGRAM
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	check(err)
	if h.Block {
		check(unix.SetNonblock(pair[1], false))
	}
	switch h.What {
	case "nothing":
		return -1, nil
	case "two":
		return -1, pair[:]
	case "datagram":
		return -1, pair[1:]
	case "closed":
		_ = unix.Close(pair[0])
		return -1, pair[1:]
	case "file":
		fd, err := unix.Open("/proc/self/status", unix.O_RDONLY, 0)
		check(err)
		return -1, []int{fd}
	case "listening":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		check(err)
		check(unix.Bind(fd, &unix.SockaddrUnix{Name: "@listening"}))
		check(unix.Listen(fd, 1))
		return -1, []int{fd}
	}
	return pair[0], pair[1:]
}

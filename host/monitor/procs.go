package monitor

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// children are processes held by descriptor, so that they stay the same ones.
type children []int

// childrenOf finds the processes whose parent is pid.
func childrenOf(pid int) (out children) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil || parentOf(child) != pid {
			continue
		}
		fd, err := unix.PidfdOpen(child, 0)
		if err != nil {
			continue
		}
		if parentOf(child) != pid { // another one of this number
			unix.Close(fd)
			continue
		}
		out = append(out, fd)
	}
	return out
}

func parentOf(pid int) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return -1
	}
	_, after, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return -1
	}
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return ppid
}

// wait reports whether some are still there after a while.
func (c children) wait(most time.Duration) (left bool) {
	deadline := time.Now().Add(most)
	for _, fd := range c {
		ms := max(0, time.Until(deadline).Milliseconds())
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, int(ms)); err != nil || n == 0 {
			left = true
		}
	}
	return left
}

// kill ends those that are left and waits for that.
func (c children) kill() {
	for _, fd := range c {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	c.wait(patience)
}

func (c children) close() {
	for _, fd := range c {
		unix.Close(fd)
	}
}

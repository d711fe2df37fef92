package machinetest

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Proc is a process that a test watches.
type Proc struct {
	PID  int
	Args string
	fd   int // pidfd: it stays the same process
}

// Below returns every process that descends from pid, pid itself left out.
func Below(t testing.TB, pid int) []Proc {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, e := range entries {
		if child, err := strconv.Atoi(e.Name()); err == nil {
			children[parent(child)] = append(children[parent(child)], child)
		}
	}
	var out []Proc
	todo := children[pid]
	for len(todo) > 0 {
		p := todo[0]
		todo = append(todo[1:], children[p]...)
		fd, err := unix.PidfdOpen(p, 0)
		if err != nil {
			continue // gone meanwhile
		}
		t.Cleanup(func() { unix.Close(fd) })
		raw, _ := os.ReadFile("/proc/" + strconv.Itoa(p) + "/cmdline")
		out = append(out, Proc{PID: p, Args: strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " ")), fd: fd})
	}
	return out
}

func parent(pid int) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return -1
	}
	_, after, _ := strings.Cut(string(raw), ") ") // the name may hold anything else
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return -1
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// Named returns the one process whose arguments begin with prefix.
func Named(t testing.TB, procs []Proc, prefix string) Proc {
	t.Helper()
	for _, p := range procs {
		if strings.HasPrefix(p.Args, prefix) {
			return p
		}
	}
	t.Fatalf("no process %q among %v", prefix, procs)
	return Proc{}
}

// Kill sends a signal to exactly this process.
func (p Proc) Kill(t testing.TB, sig unix.Signal) {
	t.Helper()
	if err := unix.PidfdSendSignal(p.fd, sig, nil, 0); err != nil {
		t.Fatalf("cannot send %v to %d (%s): %v", sig, p.PID, p.Args, err)
	}
}

// AwaitGone fails the test unless all processes have ended within the time
// that Berth allows itself, which it does not wait out.
func AwaitGone(t testing.TB, procs []Proc) {
	t.Helper()
	end := time.Now().Add(5 * time.Second)
	for _, p := range procs {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, max(0, int(time.Until(end).Milliseconds())))
			if err == unix.EINTR {
				continue
			}
			if n == 0 {
				t.Errorf("process %d (%s) is still there after 5 s", p.PID, p.Args)
			}
			break
		}
	}
}

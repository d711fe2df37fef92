// Attackapp tries what a sandbox must refuse and prints what came of it, one
// JSON object a line. Tests put it where an app would be.
//
//	attackapp probe-order JSON       an Order of package probe
//	attackapp -do ACTION:PATH...     ACTION is read, write, create, list, stat or call
//	attackapp -net ACTION:PORT...    see netAction
//	attackapp -unix ACTION...        see unixActions
//	attackapp -terminal ACTION...    see terminalActions
//	attackapp -confined | -x32 | -int80 | -environ | -serve | -callees | -hang | -orphans | -eat | -forks
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/berthos/berth/init/sandbox/probe"
	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

func run(args []string, out io.Writer) int {
	if code, ok := probe.Maybe(append([]string{"attackapp"}, args...), out); ok {
		return code
	}
	if len(args) > 0 {
		if special, ok := specials[args[0]]; ok {
			return special(args[1:], out)
		}
	}
	fmt.Fprintln(os.Stderr, "attackapp: no such order")
	return 2
}

// again executes this program anew and passes its output on.
func again(args []string, out io.Writer) int {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "attackapp:", err)
		return 1
	}
	return 0
}

// specials are what is not an attack in the table.
var specials = map[string]func([]string, io.Writer) int{
	"-nothing": func([]string, io.Writer) int { return 0 },
	"-again":   func(args []string, out io.Writer) int { return again(args, out) },
	"-confined": func(_ []string, out io.Writer) int {
		runtime.LockOSThread()
		started := make(chan struct{})
		go func() { runtime.LockOSThread(); close(started); select {} }()
		<-started
		fmt.Fprintln(out, "confined:", probe.Confined())
		return 0
	},
	"-x32": func(_ []string, out io.Writer) int { fmt.Fprintln(out, "x32:", probe.X32()); return 0 },
	"-int80": func(_ []string, out io.Writer) int {
		pid, err := probe.ThirtyTwoBit()
		fmt.Fprintln(out, "int80:", pid, err)
		return 0
	},
	"-environ":  environ,
	"-callees":  callees,
	"-unix":     unixActions,
	"-dial":     dial,
	"-serve":    serve,
	"-eat":      eat,
	"-forks":    forks,
	"-wait":     func([]string, io.Writer) int { io.Copy(io.Discard, os.Stdin); return 0 },
	"-do":       do,
	"-net":      netActions,
	"-hang":     hang,
	"-terminal": terminalActions,
	"-repeat":   repeat,
	"-request":  request,
	"-orphans":  orphans,
}

// environ prints what the app inherited: arguments, environment, descriptors,
// working folder and its own pid.
func environ(args []string, out io.Writer) int {
	dir, _ := os.Getwd()
	names, _ := os.ReadDir("/proc/self/fd")
	for _, n := range names {
		to, err := os.Readlink("/proc/self/fd/" + n.Name())
		if err == nil && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "anon_inode:") {
			kind, _, _ := strings.Cut(to, ":")
			fmt.Fprintln(out, "fd", n.Name(), kind)
		}
	}
	host, _ := os.Hostname()
	fmt.Fprintln(out, "args", args)
	fmt.Fprintln(out, "env", os.Environ())
	fmt.Fprintln(out, "dir", dir, "host", host, "uid", os.Getuid(), "gid", os.Getgid())
	return 0
}

// callees prints, for each app that it may call, what comes out of the socket.
func callees(_ []string, out io.Writer) int {
	for callee := range strings.SplitSeq(os.Getenv("BERTH_INVOKE"), ",") {
		app, fd, _ := strings.Cut(callee, "=")
		n, err := strconv.Atoi(fd)
		if err != nil {
			fmt.Fprintln(out, "none")
			continue
		}
		kind, _ := unix.GetsockoptInt(n, unix.SOL_SOCKET, unix.SO_TYPE)
		heard := make([]byte, 64)
		n, err = unix.Read(n, heard)
		fmt.Fprintln(out, app, fd, kind == unix.SOCK_SEQPACKET, string(heard[:max(n, 0)]), err)
	}
	return 0
}

// serve answers one line on the inherited socket: with the same line, or, if it
// says "read PATH", with what read finds.
func serve(_ []string, out io.Writer) int {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	c, err := l.Accept()
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	if name, ok := strings.CutPrefix(strings.TrimSpace(line), "read:"); ok {
		line = act("read", name) + "\n"
	}
	fmt.Fprint(c, line)
	return 0
}

// do performs actions on paths and prints what came of each.
func do(args []string, out io.Writer) int {
	for _, a := range args {
		action, name, _ := strings.Cut(a, ":")
		fmt.Fprintln(out, a, act(action, name))
	}
	return 0
}

// act returns the answer as one word: what was read, "ok", or the errno's name.
func act(action, name string) string {
	var err error
	answer := "ok"
	switch action {
	case "read":
		var raw []byte
		raw, err = os.ReadFile(name)
		answer = strings.TrimSpace(string(raw))
	case "write", "create":
		flags := map[string]int{"write": os.O_WRONLY, "create": os.O_WRONLY | os.O_CREATE | os.O_EXCL}[action]
		var f *os.File
		if f, err = os.OpenFile(name, flags, 0o644); err == nil {
			_, err = f.WriteString("by the app")
			f.Close()
		}
	case "list":
		var list []os.DirEntry
		list, err = os.ReadDir(name)
		answer = fmt.Sprint(len(list))
	case "stat":
		_, err = os.Stat(name)
	case "call":
		nr := map[string]uintptr{"unshare": unix.SYS_UNSHARE, "io_uring_setup": unix.SYS_IO_URING_SETUP}[name]
		if _, _, errno := syscall.Syscall(nr, 0, 0, 0); errno != 0 {
			err = errno
		}
	}
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		return unix.ErrnoName(errno)
	}
	return answer
}

// eat touches 256 MiB.
func eat(_ []string, out io.Writer) int {
	var held [][]byte
	for len(held) < 256 {
		held = append(held, bytes.Repeat([]byte{1}, 1<<20))
	}
	fmt.Fprintln(out, "ate", len(held), "MiB")
	return 0
}

// forks starts 100 processes of several threads each, unless it is refused.
func forks(_ []string, out io.Writer) int {
	r, w, err := os.Pipe()
	if err != nil {
		return 1
	}
	defer w.Close()
	for i := range 100 {
		cmd := exec.Command("/proc/self/exe", "-wait")
		cmd.Stdin = r
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(out, "refused after some:", i > 0, err)
			return 0
		}
	}
	fmt.Fprintln(out, "not refused")
	return 0
}

// hang waits for SIGTERM and ends with 42.
func hang(_ []string, out io.Writer) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Fprintln(out, "waiting")
	<-signals
	return 42
}

// orphans leaves children of children behind, waits until init has adopted and
// reaped them all, and ends with 0.
func orphans([]string, io.Writer) int {
	for range 20 {
		if err := exec.Command("/proc/self/exe", "-again", "-nothing").Run(); err != nil {
			return 1
		}
	}
	return 0
}

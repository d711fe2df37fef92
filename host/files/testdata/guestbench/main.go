//go:build linux

// guestbench is the init of a microVM that measures and checks shared folders:
// one per virtio-serial port named files.<options with + for commas>. It
// prints lines "name value unit" and "FAIL name: why" on the console. On the
// port bench.ctl it asks the host to change files.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	if len(args) > 2 && args[0] == "child" {
		return child(args[1], args[2:])
	}
	for _, m := range [][3]string{{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"devtmpfs", "/dev", "devtmpfs"}, {"tmpfs", "/mnt", "tmpfs"}} {
		os.MkdirAll(m[1], 0o755)
		unix.Mount(m[0], m[1], m[2], 0, "")
	}
	ports := ports()
	var names []string
	for n := range ports {
		if strings.HasPrefix(n, "files.") {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	for _, n := range names {
		share(ports["bench.ctl"], strings.ReplaceAll(strings.TrimPrefix(n, "files."), "+", ","), ports[n])
	}
	fmt.Println("DONE")
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	return 0
}

// host carries out one edit for each line.
type host struct {
	w *os.File
	r *bufio.Reader
}

func (h *host) do(format string, args ...any) {
	fmt.Fprintf(h.w, format+"\n", args...)
	h.r.ReadString('\n')
}

func ports() map[string]string {
	m := map[string]string{}
	list, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, p := range list {
		b, _ := os.ReadFile(p)
		m[strings.TrimSpace(string(b))] = "/dev/" + filepath.Base(filepath.Dir(p))
	}
	return m
}

func openPort(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		fmt.Println("FAIL open", path, err)
	}
	return f
}

// share mounts one port and has another process run everything on it: a
// process that carries the folder's messages must not depend on the folder,
// least of all while it forks, when Go's scheduler stands still.
func share(ctl, opts, port string) {
	fmt.Println("MODE", opts)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		fmt.Println("FAIL socketpair", err)
		return
	}
	relay(openPort(port), os.NewFile(uintptr(pair[1]), "relay"))
	dir := "/mnt/" + filepath.Base(port)
	os.MkdirAll(dir, 0o755)
	data := fmt.Sprintf("trans=fd,rfdno=%d,wfdno=%d,version=9p2000.L,access=any,%s", pair[0], pair[0], opts)
	if err := unix.Mount("files", dir, "9p", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		fmt.Println("FAIL mount", err)
		return
	}
	if err := spawn("bench", ctl, dir).Run(); err != nil {
		fmt.Println("FAIL bench", err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		fmt.Println("FAIL umount", err)
	}
	unix.Close(pair[0])
}

// relay copies between the kernel's end of a socket pair and a port.
func relay(port, sock *os.File) {
	copyLoop := func(to, from *os.File) {
		buf := make([]byte, 1<<20)
		for {
			n, err := from.Read(buf)
			if err != nil || n == 0 {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go copyLoop(port, sock)
	go copyLoop(sock, port)
}

func spawn(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Args = append([]string{"child"}, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stdout
	return c
}

func since(t time.Time, n int) string {
	return fmt.Sprintf("%.3f ms", float64(time.Since(t).Microseconds())/1000/float64(n))
}

func rate(t time.Time, bytes int) string {
	return fmt.Sprintf("%.1f MiB/s", float64(bytes)/(1<<20)/time.Since(t).Seconds())
}

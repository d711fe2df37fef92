//go:build linux

package files

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testvm"
	"golang.org/x/sys/unix"
)

// guestModes are the mount options that are compared. Each gets a port named
// after it, so commas are written as +.
var guestModes = []string{
	"cache=mmap+msize=524312+noxattr+locktimeout=1",
	"cache=mmap+ignoreqv+msize=524312+noxattr+locktimeout=1",
	"cache=none+msize=524312+noxattr+locktimeout=1",
	"cache=readahead+ignoreqv+msize=524312+noxattr+locktimeout=1",
	"cache=loose+ignoreqv+msize=524312+noxattr+locktimeout=1",
}

// BenchmarkGuest boots a kernel (BERTH_KERNEL, an uncompressed vmlinux) under
// QEMU without KVM and has its 9p client measure and check this server:
//
//	BERTH_KERNEL=build/image/vmlinux go test -run '^$' -bench Guest -benchtime 1x -v ./host/files
//
// BERTH_MODES replaces the mount options, BERTH_QEMU_ARGS adds arguments, such
// as "-smp 2".
func BenchmarkGuest(b *testing.B) {
	kernel := os.Getenv("BERTH_KERNEL")
	if kernel == "" {
		testenv.Skip(b, "BERTH_KERNEL names no kernel")
	}
	dir := b.TempDir()
	initrd := buildGuest(b, dir)
	args := []string{"-device", "virtio-serial-device,max_ports=16"}
	ctlPath := filepath.Join(dir, "ctl")
	args = append(args, guestPort(0, ctlPath, "bench.ctl")...)
	shared := map[string]string{}
	control := &hostEdits{b: b, shared: shared}
	modes := guestModes
	if m := os.Getenv("BERTH_MODES"); m != "" {
		modes = strings.Fields(m)
	}
	for i, mode := range modes {
		path := filepath.Join(dir, fmt.Sprint("port", i))
		args = append(args, guestPort(i+1, path, "files."+mode)...)
		listen(b, path, func(c net.Conn) {
			ws := filepath.Join(dir, fmt.Sprint("ws", i))
			os.Mkdir(ws, 0o755)
			counted := &countingConn{Conn: c, n: &control.requests}
			if err := Serve(b.Context(), counted, Options{Root: ws, UID: guestUID, GID: guestGID}); err != nil && b.Context().Err() == nil {
				b.Errorf("%s: %v", mode, err)
			}
		})
		shared[strings.ReplaceAll(mode, "+", ",")] = filepath.Join(dir, fmt.Sprint("ws", i))
	}
	listen(b, ctlPath, control.serve)
	args = append(args, strings.Fields(os.Getenv("BERTH_QEMU_ARGS"))...)
	cmd := testvm.Machine{Kernel: kernel, Initrd: initrd, Devices: args}.Command(b.Context())
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal comes when the starting thread ends
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	readConsole(b, bufio.NewScanner(out), control)
	cmd.Wait()
}

func readConsole(b *testing.B, in *bufio.Scanner, control *hostEdits) {
	done := false
	for in.Scan() {
		line := strings.TrimRight(in.Text(), "\r")
		if mode, ok := strings.CutPrefix(line, "MODE "); ok {
			control.dir.Store(control.shared[mode])
		}
		if strings.HasPrefix(line, "FAIL ") {
			b.Log(line) // which modes may fail at what is a result, not a fault
		}
		fmt.Printf("%s\t(%d requests)\n", line, control.requests.Swap(0))
		done = done || line == "DONE"
	}
	if !done {
		b.Error("the guest did not come to its end")
	}
}

func guestPort(n int, path, name string) []string {
	id := "c" + strconv.Itoa(n)
	return []string{"-chardev", "socket,id=" + id + ",path=" + path, "-device", "virtserialport,chardev=" + id + ",name=" + name}
}

// listen serves the first connection to a unix socket.
func listen(b *testing.B, path string, f func(net.Conn)) {
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			f(c)
			c.Close()
		}
	}()
}

func buildGuest(b *testing.B, dir string) string {
	prog := filepath.Join(dir, "init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", prog, "./testdata/guestbench")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	body, err := os.ReadFile(prog)
	if err != nil {
		b.Fatal(err)
	}
	packed, err := testvm.Initramfs([]string{"dev"}, map[string][]byte{"init": body})
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, "initrd")
	if err := os.WriteFile(path, packed, 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// hostEdits does on the host what the guest asks for: one line, one edit.
type hostEdits struct {
	b      *testing.B
	shared map[string]string // mount options to folder
	dir    atomic.Value

	requests atomic.Int64 // since the last line on the console
}

// countingConn counts the messages that are read from it.
type countingConn struct {
	net.Conn
	n    *atomic.Int64
	head []byte // of the next message, as far as it has come
	left int    // of the message that is being read
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for b := p[:n]; len(b) > 0; {
		if c.left > 0 {
			k := min(c.left, len(b))
			c.left, b = c.left-k, b[k:]
			continue
		}
		c.head, b = append(c.head, b[0]), b[1:]
		if len(c.head) == 4 {
			c.left = int(binary.LittleEndian.Uint32(c.head)) - 4
			c.head = c.head[:0]
			c.n.Add(1)
		}
	}
	return n, err
}

func (h *hostEdits) serve(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if err := h.edit(strings.TrimSuffix(line, "\n")); err != nil {
			fmt.Printf("HOST %s: %v\n", line, err)
		}
		time.Sleep(10 * time.Millisecond) // coarse time stamps of the host differ
		c.Write([]byte("\n"))
	}
}

func (h *hostEdits) edit(line string) error {
	op, rest, _ := strings.Cut(line, " ")
	name, arg, _ := strings.Cut(rest, " ")
	arg = strings.ReplaceAll(arg, "|", "\n")
	dir := h.dir.Load().(string)
	p := filepath.Join(dir, name)
	switch op {
	case "fill":
		n, _ := strconv.Atoi(arg)
		for i := range n {
			if err := os.WriteFile(filepath.Join(p, fmt.Sprintf("file-%d.go", i)), []byte("package x\n"), 0o644); err != nil {
				return err
			}
		}
	case "write":
		return hostWrite(p, arg, os.O_TRUNC)
	case "append":
		return hostWrite(p, arg, os.O_APPEND)
	case "remove":
		return os.Remove(p)
	case "expect":
		off, text, _ := strings.Cut(arg, " ")
		at, _ := strconv.Atoi(off)
		got, err := os.ReadFile(p)
		if err != nil || len(got) < at+len(text) || string(got[at:at+len(text)]) != text {
			return fmt.Errorf("the host has something else (%d bytes, %v)", len(got), err)
		}
	case "mode":
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%o", st.Mode().Perm()); got != arg || st.Mode()&os.ModeSetuid != 0 {
			return fmt.Errorf("mode %v", st.Mode())
		}
	case "flocked":
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
			return fmt.Errorf("the host got a lock that the guest holds")
		}
	case "program":
		body, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "init"))
		if err != nil {
			return err
		}
		return os.WriteFile(p, body, 0o755)
	}
	return nil
}

func hostWrite(p, text string, flag int) error {
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|flag, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

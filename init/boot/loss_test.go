package boot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/audit"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/tools/testvm"
)

// Environment of the test binary as the first process of a VM, and as a process
// there that is denied something so many times.
const (
	guestEnv  = "BERTH_TEST_GUEST"
	deniedEnv = "BERTH_TEST_DENIED"
)

// TestVMRecords boots Berth's kernel with TestGuestSilence and TestGuestLosses as
// its first process.
func TestVMRecords(t *testing.T) {
	kernel := testKernel(t)
	binary := filepath.Join(t.TempDir(), "boot.test")
	compile := exec.Command("go", "test", "-c", "-o", binary, ".")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	root, err := testvm.Initramfs([]string{"proc", "sys", "dev", "tmp"}, map[string][]byte{"init": raw})
	if err != nil {
		t.Fatal(err)
	}
	initrd := filepath.Join(t.TempDir(), "initramfs")
	if err := os.WriteFile(initrd, root, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := testvm.Machine{Kernel: kernel, Initrd: initrd, Words: guestEnv + "=1 -- -test.v -test.run=^TestGuest(Silence|Losses)$"}.Command(t.Context()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestGuestSilence") || !strings.Contains(string(out), "--- PASS: TestGuestLosses") || !strings.Contains(string(out), "guest: tests ended: 0") {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(out), "\r", "")) {
		if strings.Contains(line, "_test.go:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// runGuest is TestMain as the first process of a VM, which ends with it.
func runGuest(m *testing.M) {
	code := 1
	err := errors.Join(unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("dev", "/dev", "devtmpfs", 0, ""))
	if err == nil {
		code = m.Run()
	}
	fmt.Println("guest: tests ended:", code, err)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// TestGuestLosses has a process be denied more often than the kernel keeps while
// nobody reads. What is lost must be told, by the kernel's own counter and by
// that of the process's domain.
func TestGuestLosses(t *testing.T) {
	if os.Getenv(guestEnv) == "" {
		return // TestVMRecords runs it in its VM
	}
	const denials = 20_000
	conn, err := audit.Register()
	if err != nil {
		t.Fatal(err)
	}
	loseRecords(t)
	r := newRecords(conn, func(int) int { return 0 })
	r.started(os.Getpid(), "a")
	r.runs[os.Getpid()].released = true
	child := exec.Command("/proc/self/exe")
	child.Env = []string{deniedEnv + "=" + strconv.Itoa(denials)}
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	done, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(done); err != nil || string(said) != strconv.Itoa(denials) {
		t.Fatalf("the process was denied %q times, %v", said, err)
	}

	go func() { _ = r.read() }() // only now
	came := make(chan link.DenialRecord)
	go r.out.send(func(rec link.DenialRecord) error { came <- rec; return nil })
	// The kernel sends what it has kept when something new comes, and may lose
	// that too: so it is asked again until it answers.
	ask := time.NewTicker(time.Second)
	defer ask.Stop()
	var sent, suppressed, lost uint64
	var end link.DenialRecord
	deadline := time.After(2 * time.Minute)
	for !end.Ended {
		select {
		case rec := <-came:
			switch {
			case rec.Sync != 0:
				// Every record that was kept has been read: the domain may end, which it
				// does when its process has been reaped.
				_ = hold.Close()
				_ = child.Wait()
			case rec.Domain == "":
				lost += rec.Lost
			default:
				suppressed += rec.Suppressed
				if end = rec; !rec.Ended && len(rec.Blockers) > 0 {
					sent++
				}
			}
		case <-ask.C:
			if err := r.sync(1); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("the domain does not end: %d sent, %d suppressed, the kernel lost %d", sent, suppressed, lost)
		}
	}
	t.Logf("%d denials: %d sent, %d suppressed, %d lost; the kernel lost %d records", end.Denials, sent, suppressed, end.Lost, lost)
	if end.App != "a" || end.Denials != denials || sent+suppressed+end.Lost != denials || end.Lost == 0 || lost == 0 {
		t.Errorf("%+v", end)
	}
}

// loseRecords makes the kernel keep few records and nobody wait for them.
func loseRecords(t *testing.T) {
	t.Helper()
	const auditSet, backlogLimit, backlogWait = 1001, 1 << 4, 1 << 5
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	status := [10]uint32{0: backlogLimit | backlogWait, 5: 64} // the kernel's struct audit_status
	msg := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(msg, uint32(unix.NLMSG_HDRLEN)+uint32(unsafe.Sizeof(status)))
	binary.NativeEndian.PutUint16(msg[4:], auditSet)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if msg, err = binary.Append(msg, binary.NativeEndian, status); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 256)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:]) != 0 {
		t.Fatalf("the kernel keeps its backlog: %v, % x", err, answer[:n])
	}
}

// beDenied restricts this process, is denied n creates, says how many it was,
// and waits until its stdin ends.
func beDenied(n string) int {
	times, err := strconv.Atoi(n)
	if err != nil {
		return 2
	}
	runtime.LockOSThread() // what restricts itself is the thread
	if err := restrict(0); err != nil {
		return 4
	}
	denied := 0
	for range times {
		if _, err := syscall.Open("/tmp/x", syscall.O_CREAT|syscall.O_WRONLY, 0o600); err == syscall.EACCES {
			denied++
		}
	}
	return say(denied)
}

func say(denied int) int {
	fmt.Print(denied)
	_ = os.Stdout.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

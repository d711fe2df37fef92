package boot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/audit"
)

// doEnv has the test binary do steps, in their order: see do.
const doEnv = "BERTH_TEST_DO"

// TestGuestSilence shows what keeps a denial off the kernel's record, each
// beside what does not: why the enforcer sets the flags it sets, why no class may
// restrict itself again, and why PID 1 listens where it does. It comes before
// TestGuestLosses, which makes the kernel lose records.
func TestGuestSilence(t *testing.T) {
	if os.Getenv(guestEnv) == "" {
		return // TestVMRecords runs it in its VM
	}
	listening := listen(t)
	for _, c := range []struct {
		name, steps string
		records     int
	}{
		{"a domain, no exec", "restrict=0 create", 1},
		{"a domain, then exec", "restrict=0 exec create", 0},
		{"a domain that logs after exec, then exec", "restrict=2 exec create", 1},
		{"the same, two creates", "restrict=2 exec create create", 2},
		{"the same, a grandchild", "restrict=2 exec spawn create", 1},
		{"a nested domain that does not log", "restrict=2 exec restrict=1 create", 0},
		{"a nested domain, then exec", "restrict=2 exec restrict=0 exec create", 0},
		{"a filter without its flag", "filter=0 unshare", 0},
		{"a filter with SECCOMP_FILTER_FLAG_LOG", "filter=2 unshare", 1},
		{"the same, then exec", "filter=2 exec unshare", 1},
	} {
		if got := listening.while(t, c.steps); got != c.records {
			t.Errorf("%s: %d records, want %d", c.name, got, c.records)
		}
	}
	// Records go to the first network namespace only.
	elsewhere := make(chan multicast)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		elsewhere <- listen(t)
	}()
	other := <-elsewhere
	if n := listening.while(t, "restrict=0 create"); n != 1 {
		t.Errorf("control: %d records", n)
	}
	if n, _, err := unix.Recvfrom(int(other), make([]byte, 1<<14), unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("another network namespace was sent %d bytes, %v", n, err)
	}
	// What a reader of the group has no room for is gone: the kernel keeps and
	// counts only what it sends to a registered daemon.
	small := listen(t)
	if err := unix.SetsockoptInt(int(small), unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<13); err != nil {
		t.Error(err)
	}
	const creates = 8 // whose records the queue of a kernel without a daemon has room for
	if n := listening.while(t, "restrict=0"+strings.Repeat(" create", creates)); n != creates {
		t.Errorf("control: %d records of %d", n, creates)
	}
	came, overrun := small.left()
	if came >= creates || !overrun {
		t.Errorf("%d records of %d came through a small buffer, overrun %v", came, creates, overrun)
	}
	t.Logf("%d of %d came through a small buffer", came, creates)
}

// left counts the denials that are in the socket's buffer, and says whether the
// kernel found it full.
func (m multicast) left() (denials int, overrun bool) {
	buf := make([]byte, 1<<14)
	for {
		n, _, err := unix.Recvfrom(int(m), buf, unix.MSG_DONTWAIT)
		switch {
		case err == unix.ENOBUFS:
			overrun = true
		case err != nil:
			return denials, overrun
		case n >= unix.NLMSG_HDRLEN && binary.NativeEndian.Uint16(buf[4:]) == audit.TypeAccess:
			denials++
		}
	}
}

// multicast is a socket that gets what an audit daemon would.
type multicast int

// listen switches auditing on and reads along.
func listen(t *testing.T) multicast {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
			unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}),
		)
	}
	if err != nil {
		t.Error(err)
		return -1
	}
	const auditSet, enabled, statusSize = 1001, 1, 40
	msg := make([]byte, unix.NLMSG_HDRLEN+statusSize)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], auditSet)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(msg[unix.NLMSG_HDRLEN:], enabled)
	binary.NativeEndian.PutUint32(msg[unix.NLMSG_HDRLEN+4:], 1)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil && err != unix.ECONNREFUSED {
		t.Error(err) // the kernel has no audit socket in other network namespaces
	}
	return multicast(fd)
}

// while counts the records of a process that does these steps. One that is known
// to be recorded comes after: then all of before are here.
func (m multicast) while(t *testing.T, steps string) (records int) {
	t.Helper()
	run := func(steps string) int {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{doEnv + "=" + steps}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", steps, err, out)
		}
		return cmd.Process.Pid
	}
	run(steps)
	last := run("restrict=0 create")
	var asm audit.Assembler
	buf := make([]byte, 1<<14)
	for {
		n, _, err := unix.Recvfrom(int(m), buf, 0)
		if err != nil || n < unix.NLMSG_HDRLEN {
			t.Fatalf("%d bytes, %v", n, err)
		}
		events, err := asm.Add(binary.NativeEndian.Uint16(buf[4:]), buf[unix.NLMSG_HDRLEN:n])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch {
			case e.Process == nil:
			case e.Process.PID == last:
				return records
			default:
				records++
			}
		}
	}
}

// do does the first of these steps and then the others: "restrict=FLAGS" makes
// a domain of Landlock, "filter=FLAGS" a filter that refuses unshare, "exec" and
// "spawn" go on in another program, "create" and "unshare" must be refused.
func do(steps string) int {
	runtime.LockOSThread() // what restricts itself is the thread
	for rest := steps; rest != ""; {
		var step string
		step, rest, _ = strings.Cut(rest, " ")
		name, value, _ := strings.Cut(step, "=")
		flags, _ := strconv.ParseUint(value, 10, 8)
		var err error
		switch name {
		case "restrict":
			err = restrict(uintptr(flags))
		case "filter":
			err = filterUnshare(uintptr(flags))
		case "exec":
			err = syscall.Exec("/proc/self/exe", os.Args[:1], []string{doEnv + "=" + rest})
		case "spawn":
			_, err = syscall.ForkExec("/proc/self/exe", os.Args[:1], &syscall.ProcAttr{Env: []string{doEnv + "=" + rest}})
			if err == nil {
				var status syscall.WaitStatus
				if _, err = syscall.Wait4(-1, &status, 0, nil); err == nil {
					return status.ExitStatus()
				}
			}
		case "create":
			if _, err = syscall.Open("/tmp/x", syscall.O_CREAT|syscall.O_WRONLY, 0o600); err == syscall.EACCES {
				err = nil
			} else {
				err = fmt.Errorf("it was not refused: %v", err)
			}
		case "unshare":
			if err = unix.Unshare(0); err == syscall.EPERM {
				err = nil
			} else {
				err = fmt.Errorf("it was not refused: %v", err)
			}
		}
		if err != nil {
			fmt.Println(step, err)
			return 1
		}
	}
	return 0
}

// restrict forbids this thread to make files.
func restrict(flags uintptr) error {
	attr := struct{ fs uint64 }{unix.LANDLOCK_ACCESS_FS_MAKE_REG}
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(fd))
	if _, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, flags, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// filterUnshare refuses this thread unshare.
func filterUnshare(flags uintptr) error {
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_UNSHARE},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

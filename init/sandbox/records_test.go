package sandbox_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/init/sandbox"
	"golang.org/x/sys/unix"
)

// TestRecords reads the kernel's audit records of an executed app: what
// Landlock denies and what is dangerous by name is recorded, what is only
// unknown is not. It switches auditing on, so it is for guests.
func TestRecords(t *testing.T) {
	if profiles[0] != sandbox.ProfileVM {
		t.Skip("auditing is the whole host's: only in a guest")
	}
	fd := auditSocket(t)
	b := newBase(t, sandbox.ProfileVM, "")
	o := start(t, b.job(sandbox.ProfileVM, []string{"-do", "write:/run/canary/canary", "call:unshare", "call:io_uring_setup", "create:/tmp/after"}).withCgroup(t))
	want := "write:/run/canary/canary EACCES\ncall:unshare EPERM\ncall:io_uring_setup ENOSYS\ncreate:/tmp/after EACCES\n"
	if o.Stdout != want {
		t.Fatalf("%+v %q", o.failed(), o.Stdout)
	}
	records := readUntil(t, fd, "fs.make_reg") // the app's last denial
	for _, part := range []string{
		"blockers=fs.write_file path=\"/run/canary/canary\"",
		"blockers=fs.read_file path=\"/run/canary/canary\"",       // the canary's own
		"blockers=net.connect_tcp",                                // the canary's own
		"exe=\"/app/attackapp\" sig=0 arch=c000003e syscall=272 ", // unshare, after execve
	} {
		if !strings.Contains(records, part) {
			t.Errorf("no record has %q:\n%s", part, records)
		}
	}
	if n := strings.Count(records, "blockers=fs.write_file"); n != 2 {
		t.Errorf("%d records of denied writes, want the canary's and the app's", n)
	}
	if strings.Contains(records, "syscall=425 ") {
		t.Errorf("an unknown call was recorded:\n%s", records)
	}
}

// auditSocket switches auditing on and listens to the records.
func auditSocket(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		t.Fatal(os.NewSyscallError("bind", err))
	}
	const auditSet, statusSize = 1001, 40
	msg := make([]byte, unix.NLMSG_HDRLEN+statusSize)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], auditSet)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(msg[16:], 1) // mask: enabled
	binary.NativeEndian.PutUint32(msg[20:], 1) // enabled
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(os.NewSyscallError("send", err))
	}
	limit := unix.NsecToTimeval(int64(30 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	return fd
}

// readUntil returns the records up to one that contains mark.
func readUntil(t *testing.T, fd int, mark string) string {
	t.Helper()
	var all bytes.Buffer
	buf := make([]byte, 64<<10)
	for !strings.Contains(all.String(), mark) {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			t.Fatalf("no record has %q: %v\n%s", mark, err, all.String())
		}
		if n > unix.NLMSG_HDRLEN {
			all.Write(bytes.TrimRight(buf[unix.NLMSG_HDRLEN:n], "\x00"))
			all.WriteByte('\n')
		}
	}
	return all.String()
}

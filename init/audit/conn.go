package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes of what waits to be read: the socket's buffer, and behind it the
// kernel's queue, of about 2 KiB each. Who causes records faster than they are
// read waits at the end of its system call, and what exceeds the queue is lost.
const (
	receiveBuffer = 4 << 20
	backlogLimit  = 8 << 10
)

// The kernel's struct audit_status.
type status struct {
	Mask, Enabled, Failure, PID, RateLimit, BacklogLimit, Lost, Backlog, Features, WaitTime, WaitActual uint32
}

const (
	maskEnabled = 1 << 0
	maskPID     = 1 << 2
	maskBacklog = 1 << 4
)

// Conn is the registration as the kernel's audit daemon.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	asm  Assembler
	buf  []byte
	seq  uint32
}

// Register switches auditing on and makes this process the audit daemon. It is
// for the first process of a machine that is ours alone: the setting is the
// whole kernel's.
func Register() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_AUDIT)
	if err != nil {
		return nil, fmt.Errorf("cannot register as audit daemon: %w", err)
	}
	c := &Conn{file: os.NewFile(uintptr(fd), "audit"), buf: make([]byte, unix.NLMSG_HDRLEN+maxText+1)}
	if c.raw, err = c.file.SyscallConn(); err == nil {
		err = c.register(fd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot register as audit daemon: %w", err), c.file.Close())
	}
	return c, nil
}

func (c *Conn) register(fd int) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	for _, kind := range [...]uint32{typePath, typeCWD, typeProctitle} {
		if err := c.leaveOut(kind); err != nil {
			return fmt.Errorf("leave out records of type %d: %w", kind, err)
		}
	}
	// The kernel answers a registration before it has done it, so that comes last.
	for _, s := range []status{
		{Mask: maskBacklog, BacklogLimit: backlogLimit},
		{Mask: maskEnabled | maskPID, Enabled: 1, PID: uint32(os.Getpid())},
	} {
		if err := c.order(typeSet, s); err != nil {
			return err
		}
	}
	return nil
}

// The kernel's struct audit_rule_data, with constants of linux/audit.h.
type rule struct {
	List, Action, Fields     uint32
	Mask                     [64]uint32
	Field, Value, FieldFlags [64]uint32
	Buflen                   uint32
}

const (
	listExclude  = 5  // AUDIT_FILTER_EXCLUDE
	fieldMsgType = 12 // AUDIT_MSGTYPE
	fieldEqual   = 0x40000000
)

// leaveOut has the kernel write no records of a type. Some come with every
// denial, are read by nobody, and would fill the queue in a flood.
func (c *Conn) leaveOut(kind uint32) error {
	r := rule{List: listExclude, Fields: 1}
	for i := range r.Mask {
		r.Mask[i] = ^uint32(0)
	}
	r.Field[0], r.Value[0], r.FieldFlags[0] = fieldMsgType, kind, fieldEqual
	err := c.order(typeAddRule, r)
	if errors.Is(err, unix.EEXIST) {
		return nil // of a daemon before
	}
	return err
}

// order has the kernel do something and waits for its answer.
func (c *Conn) order(kind uint16, what any) error {
	body, err := binary.Append(nil, binary.NativeEndian, what)
	if err != nil {
		return err
	}
	if err := c.send(kind, unix.NLM_F_ACK, body); err != nil {
		return err
	}
	return c.acknowledged()
}

// send sends one message to the kernel.
func (c *Conn) send(kind uint16, flags uint16, body []byte) error {
	c.seq++
	msg := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(msg, uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(msg[4:], kind)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(msg[8:], c.seq)
	msg = append(msg, body...)
	var sendErr error
	err := c.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return sendErr != unix.EAGAIN
	})
	return os.NewSyscallError("send", errors.Join(err, sendErr))
}

// acknowledged waits for the kernel's answer to what was sent last.
func (c *Conn) acknowledged() error {
	for {
		msg, err := c.receive()
		if err != nil {
			return err
		}
		if binary.NativeEndian.Uint16(msg[4:]) != unix.NLMSG_ERROR || binary.NativeEndian.Uint32(msg[8:]) != c.seq || len(msg) < unix.NLMSG_HDRLEN+4 {
			continue
		}
		if errno := -int32(binary.NativeEndian.Uint32(msg[unix.NLMSG_HDRLEN:])); errno != 0 {
			return syscall.Errno(errno)
		}
		return nil
	}
}

// receive returns one message of the kernel. Its own length field is not used:
// the kernel leaves the header out of it when it sends records to one receiver.
func (c *Conn) receive() ([]byte, error) {
	for {
		var n int
		var from unix.Sockaddr
		var err error
		if waitErr := c.raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), c.buf, 0)
			return err != unix.EAGAIN
		}); waitErr != nil {
			return nil, waitErr
		}
		if err != nil {
			return nil, os.NewSyscallError("receive", err)
		}
		if sa, ok := from.(*unix.SockaddrNetlink); ok && sa.Pid == 0 && n >= unix.NLMSG_HDRLEN {
			return c.buf[:n], nil
		}
	}
}

// ErrOverrun is returned when the kernel found the socket's buffer full. It
// keeps such records and tries again; ask for the status to know.
var ErrOverrun = errors.New("the audit socket's buffer was full")

// ErrUnreadable is wrapped when a record could not be parsed.
var ErrUnreadable = errors.New("unreadable audit record")

// Next waits for the next events. After ErrOverrun and ErrUnreadable it may be
// called again; other errors are final.
func (c *Conn) Next() ([]Event, error) {
	for {
		msg, err := c.receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			return nil, ErrOverrun
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("cannot read audit records: %w", err)
		}
		kind, body := binary.NativeEndian.Uint16(msg[4:]), msg[unix.NLMSG_HDRLEN:]
		if kind == TypeStatus {
			if s := readStatus(body); s != nil {
				return []Event{{Status: s}}, nil
			}
			continue
		}
		events, err := c.asm.Add(kind, body)
		if err != nil {
			return events, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		if len(events) > 0 {
			return events, nil
		}
	}
}

func readStatus(body []byte) *Status {
	const lost = 24 // its offset
	if len(body) < lost+4 {
		return nil
	}
	return &Status{Lost: binary.NativeEndian.Uint32(body[lost:])}
}

// Mark sends a mark that Next returns as an Event after everything that was
// recorded before. Marks, like AskStatus, must not be sent at the same time.
func (c *Conn) Mark(n uint64) error {
	if err := c.send(TypeMark, 0, fmt.Appendf(nil, "%s%d\x00", markPrefix, n)); err != nil {
		return fmt.Errorf("cannot mark audit records: %w", err)
	}
	return nil
}

// AskStatus asks for the kernel's counters; Next returns them as an Event.
func (c *Conn) AskStatus() error {
	if err := c.send(TypeStatus, 0, nil); err != nil {
		return fmt.Errorf("cannot ask for the audit status: %w", err)
	}
	return nil
}

// Close ends what waits in Next. The kernel goes on without a daemon.
func (c *Conn) Close() error { return c.file.Close() }

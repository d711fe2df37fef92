package boot

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/sdk/protocol"
)

// handedConn is a connection that an app made and handed over. The app has the
// same open file and may let it block: so every call on it says that it does not
// wait, whatever the file says.
type handedConn struct {
	*net.UnixConn
	raw  syscall.RawConn
	rest io.Reader // what was read already, then the connection
}

func handed(fd int) (*handedConn, error) {
	refuseDescriptors(fd)
	conn, err := fileConn(fd)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c := &handedConn{UnixConn: conn, raw: raw}
	c.rest = waiting{c}
	return c, nil
}

// soPassRights is SO_PASSRIGHTS of Linux 6.16.
const soPassRights = 83

// refuseDescriptors makes the kernel refuse, where it can, that descriptors are
// sent to a socket: to drop one may take this process's time.
func refuseDescriptors(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPassRights, 0)
}

// Read reads on after the first line.
func (c *handedConn) Read(p []byte) (int, error) { return c.rest.Read(p) }

// waiting reads from the connection, and waits for it as Go does.
type waiting struct{ c *handedConn }

func (w waiting) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waitErr := w.c.raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p.
func (c *handedConn) Write(p []byte) (total int, err error) {
	waitErr := c.raw.Write(func(fd uintptr) bool {
		for total < len(p) {
			var n int
			n, err = unix.SendmsgN(int(fd), p[total:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if err == unix.EAGAIN || err == unix.EINTR {
				return false
			}
			if err != nil {
				return true
			}
			total += n
		}
		return true
	})
	if waitErr != nil {
		return total, waitErr
	}
	return total, err
}

// refuse says why there is no call, if there is room for that, and closes.
func (c *handedConn) refuse(e *protocol.Error) {
	_ = protocol.NewWriter(once{c}).Message(protocol.Message{Type: protocol.TypeError, Error: e})
	_ = c.Close()
}

// once writes what goes without waiting.
type once struct{ c *handedConn }

func (o once) Write(p []byte) (n int, err error) {
	controlErr := o.c.raw.Control(func(fd uintptr) {
		n, err = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if controlErr != nil {
		return 0, controlErr
	}
	return n, err
}

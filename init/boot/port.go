package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/link"
)

// portName is the virtio-serial port that carries the link.
const portName = "berth.link"

// linkFD is the link's descriptor on a native machine.
const linkFD = 3

// portTimeout bounds the wait for the port: the kernel adds ports while PID 1
// runs already, but a machine without one will never have one.
const portTimeout = 10 * time.Second

// openPort opens the port and waits until a host has the other end open.
func openPort(ctx context.Context) (link.Conn, error) {
	path, err := findPort(ctx, "/sys/class/virtio-ports", "/dev")
	if err != nil {
		return nil, err
	}
	// os.OpenFile gives the port to Go's poller: a read that blocks in the
	// kernel would hold the one processor until the scheduler notices.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	// While no host has the other end open, a read returns at once (as if at
	// the end of a file) but a write waits. Hosts skip blank lines.
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := f.Write([]byte("\n")); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot wait for a host: %w", err)
	}
	return f, nil
}

func findPort(ctx context.Context, class, dev string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, portTimeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(class, "*", "name"))
		if err != nil {
			return "", err
		}
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err == nil && strings.TrimSpace(string(raw)) == portName {
				return filepath.Join(dev, filepath.Base(filepath.Dir(name))), nil
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", fmt.Errorf("no virtio-serial port %q appeared", portName)
		}
	}
}

// openInherited takes the connected socket that the machine left at linkFD. If
// it left none, the number may belong to Go's runtime, which would not survive
// its being closed: so it is looked at first.
func openInherited(context.Context) (link.Conn, error) {
	domain, err := unix.GetsockoptInt(linkFD, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err == nil && domain != unix.AF_UNIX {
		err = errors.New("not a unix socket")
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not the link: %w", linkFD, err)
	}
	f := os.NewFile(linkFD, "link")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not the link: %w", linkFD, err)
	}
	return conn.(*net.UnixConn), nil
}

package sandbox

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// canaryFile is allowed to the app by owner, mode and mount, and granted by no
// rule.
const canaryFile = canaryDir + "/canary"

// trial is one canary: it must work before the restrictions and fail after
// them with the error of the layer that it is about. One that fails before
// proves nothing, one that works after proves that the layer does not hold;
// either stops the start.
type trial struct {
	name  string
	layer string
	abi   int // the Landlock ABI from which on it is refused; 0: any
	try   func(*canary) error
	want  error
}

var trials = []trial{
	{"write to " + canaryFile, StepLandlock, 0, writeCanary, unix.EACCES},
	{"read of " + canaryFile, StepLandlock, 0, readCanary, unix.EACCES},
	{"TCP connect to own listener", StepLandlock, 0, connectCanary, unix.EACCES},
	{"UDP datagram to own socket", StepLandlock, 10, sendCanary, unix.EACCES},
	{"unshare of nothing", StepSeccomp, 0, unshareCanary, unix.EPERM},
}

// canary is what the trials use. The sockets are made before seccomp, which
// may refuse new ones: it is Landlock that has to refuse the connection.
type canary struct {
	clients  []int // unconnected TCP sockets, one for each try
	sender   int   // a bound UDP socket
	tcp, udp *unix.SockaddrInet4
}

func writeCanary(*canary) error { return openOnce(unix.O_WRONLY) }
func readCanary(*canary) error  { return openOnce(unix.O_RDONLY) }

func openOnce(flags int) error {
	fd, err := unix.Open(canaryFile, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func connectCanary(c *canary) error {
	fd := c.clients[0]
	c.clients = c.clients[1:]
	return unix.Connect(fd, c.tcp)
}

func sendCanary(c *canary) error { return unix.Sendto(c.sender, []byte("canary"), 0, c.udp) }

func unshareCanary(*canary) error { return unix.Unshare(0) }

// openCanaryObjects makes the objects and tries each under the app's identity.
func openCanaryObjects(e *enforcer) (string, error) {
	fd, err := unix.Open(canaryFile, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return "", fmt.Errorf("cannot make %s: %w", canaryFile, err)
	}
	unix.Close(fd)
	if err := e.canary.makeSockets(e.policy.Connect); err != nil {
		return "", err
	}
	for _, t := range trials {
		if err := t.try(&e.canary); err != nil {
			return "", fmt.Errorf("canary %q proves nothing, it fails without restriction: %w", t.name, err)
		}
	}
	return fmt.Sprintf("%d opened", len(trials)), nil
}

// checkCanaries tries each again and wants the layer's own error.
func checkCanaries(e *enforcer) (string, error) {
	refused := 0
	for _, t := range trials {
		if e.ablated(t.layer) || e.abi < t.abi {
			continue
		}
		if err := t.judge(t.try(&e.canary)); err != nil {
			return "", err
		}
		refused++
	}
	return fmt.Sprintf("%d refused", refused), nil
}

// judge wants the answer to be the refusal of the trial's own layer.
func (t trial) judge(answer error) error {
	switch {
	case answer == nil:
		return fmt.Errorf("canary %q was not refused: %s does not hold", t.name, t.layer)
	case !errors.Is(answer, t.want):
		return fmt.Errorf("canary %q: want %q from %s, got %w", t.name, t.want, t.layer, answer)
	}
	return nil
}

// makeSockets makes a listener and a receiver on the own loopback, on ports
// that the policy does not grant, and what speaks to them.
func (c *canary) makeSockets(granted []uint16) (err error) {
	listener, addr, err := boundSocket(unix.SOCK_STREAM, granted)
	if err == nil {
		c.tcp = addr
		err = unix.Listen(listener, 8)
	}
	for range 2 { // before and after
		var fd int
		if err == nil {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			c.clients = append(c.clients, fd)
		}
	}
	if err == nil {
		_, c.udp, err = boundSocket(unix.SOCK_DGRAM, granted)
	}
	if err == nil {
		c.sender, _, err = boundSocket(unix.SOCK_DGRAM, nil)
	}
	if err != nil {
		return fmt.Errorf("cannot make canary sockets: %w", err)
	}
	return nil
}

// boundSocket binds a socket to a free port of the loopback address. Ports that
// are granted would prove nothing; the sockets that got one stay, so that the
// next try gets another.
func boundSocket(kind int, granted []uint16) (int, *unix.SockaddrInet4, error) {
	for range len(granted) + 1 {
		fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, nil, err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return -1, nil, err
		}
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return -1, nil, err
		}
		addr, ok := sa.(*unix.SockaddrInet4)
		if ok && !slices.Contains(granted, uint16(addr.Port)) {
			return fd, addr, nil
		}
	}
	return -1, nil, errors.New("every free port is granted")
}

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// netSysctls make Landlock's rules for ports the only ones in the app's own network
// namespace: they shut what would pass them, and open what would be refused
// although the policy grants it. A kernel without the feature lacks the file.
var netSysctls = []struct{ file, value string }{
	{"/proc/sys/net/ipv4/tcp_fastopen", "0"}, // connects by sending
	{"/proc/sys/net/mptcp/enabled", "0"},     // is TCP, but not to Landlock
	{"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
}

// closeNetwork brings the loopback device up, the only one there is, and shuts
// the known holes. It fails if any other device could carry a packet out.
func closeNetwork(e *enforcer) (string, error) {
	for _, s := range netSysctls {
		if e.ablated(ablateSysctls) {
			break
		}
		err := os.WriteFile(s.file, []byte(s.value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("cannot set %s to %s: %w", s.file, s.value, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("cannot open a socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return "", err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return "", fmt.Errorf("cannot bring lo up: %w", err)
	}
	return "", onlyLoopback()
}

// onlyLoopback makes sure that no device but a loopback is up, so that there
// is no way out of the namespace.
func onlyLoopback() error {
	raw, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("cannot list network devices: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(raw)
	if err != nil {
		return fmt.Errorf("cannot read the list of network devices: %w", err)
	}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		index := binary.NativeEndian.Uint32(m.Data[4:])
		flags := binary.NativeEndian.Uint32(m.Data[8:])
		if flags&unix.IFF_UP != 0 && flags&unix.IFF_LOOPBACK == 0 {
			return fmt.Errorf("network device %d is up: the namespace is not the app's own", index)
		}
	}
	return nil
}

// setHostname names the app's own uts namespace.
func setHostname(e *enforcer) (string, error) {
	if err := unix.Sethostname([]byte(e.Spec.Hostname)); err != nil {
		return "", fmt.Errorf("cannot set hostname %q: %w", e.Spec.Hostname, err)
	}
	return "", nil
}

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// limits is what is refused by design: the list of the README, which it keeps
// true. It is no ordinary work and done only when named.
func limits() piece { return piece{"limits", refusals} }

func refusals(w *world) error {
	program := w.path("program")
	raw, err := os.ReadFile("/app/work-musl")
	if err == nil {
		err = os.WriteFile(program, raw, 0o755)
	}
	if err == nil {
		err = os.Mkdir(w.path("d"), 0o755)
	}
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		do   func() error
		want unix.Errno
	}{
		{"any port", func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err }, unix.EACCES},
		{"program in a writable folder", func() error { return exec.CommandContext(w, program).Run() }, unix.EACCES},
		{"code in a writable folder", func() error { return mapCode(program) }, unix.EPERM},
		{"set-group-ID folder", func() error { return unix.Chmod(w.path("d"), 0o2755) }, unix.EPERM},
		{"netlink", func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err }, unix.EPERM},
		{"/proc/cpuinfo", func() error { _, err := os.Stat("/proc/cpuinfo"); return err }, unix.ENOENT},
		{"/proc/meminfo", func() error { _, err := os.Stat("/proc/meminfo"); return err }, unix.ENOENT},
	} {
		if err := c.do(); !errors.Is(err, c.want) {
			return fmt.Errorf("%s: %w", c.name, mismatch("refusal", err, c.want))
		}
	}
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if refused := errors.Is(err, unix.EPERM); refused == w.unix {
		return mismatch("unix socket", err, w.unix)
	}
	return nil
}

func mapCode(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	return err
}

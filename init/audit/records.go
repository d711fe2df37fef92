package audit

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// maxBlockers bounds the rights that one denial may name.
const maxBlockers = 64

func (fs fields) access() (a Access, err error) {
	if a.Domain, err = fs.uint("domain", 16, 64); err != nil {
		return a, err
	}
	names, err := fs.get("blockers")
	if err != nil {
		return a, err
	}
	a.Blockers = strings.Split(names, ",")
	if len(a.Blockers) > maxBlockers {
		return a, fmt.Errorf("cannot parse audit record: more than %d blockers", maxBlockers)
	}
	for _, b := range a.Blockers {
		if !isName(b) {
			return a, fmt.Errorf("cannot parse audit record: %q is no blocker", b)
		}
	}
	return a, fs.object(&a)
}

// isName accepts what the kernel calls its rights: "fs.make_reg", "ptrace".
func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_.") == ""
}

// object reads what was denied, in the forms of the kernel's common LSM data.
func (fs fields) object(a *Access) (err error) {
	for _, key := range []string{"path", "name"} {
		if err == nil && fs.has(key) && a.Path == "" {
			a.Path, err = fs.text(key)
		}
	}
	if err == nil && fs.has("dev") {
		a.Dev, err = fs.text("dev")
	}
	if err == nil && fs.has("ino") {
		a.Ino, err = fs.uint("ino", 10, 64)
	}
	for _, keys := range [][2]string{{"daddr", "dest"}, {"saddr", "src"}} {
		if err == nil && a.Object == "" && (fs.has(keys[0]) || fs.has(keys[1])) {
			a.Object, err = fs.address(keys[0], keys[1])
		}
	}
	if err == nil && fs.has("opid") {
		var pid uint64
		pid, err = fs.uint("opid", 10, 31)
		a.Object = "pid " + strconv.FormatUint(pid, 10)
	}
	return err
}

// address joins an address and a port, of which the kernel leaves out zeros.
func (fs fields) address(addr, port string) (string, error) {
	host, number := "", "0"
	if fs.has(addr) {
		raw, err := fs.get(addr)
		if err != nil {
			return "", err
		}
		if net.ParseIP(raw) == nil {
			return "", fmt.Errorf("cannot parse audit record: %s: no address", addr)
		}
		host = raw
	}
	if fs.has(port) {
		n, err := fs.uint(port, 10, 16)
		if err != nil {
			return "", err
		}
		number = strconv.FormatUint(n, 10)
	}
	return net.JoinHostPort(host, number), nil
}

func (fs fields) domain() (d Domain, err error) {
	if d.ID, err = fs.uint("domain", 16, 64); err != nil {
		return d, err
	}
	status, err := fs.get("status")
	switch {
	case err != nil:
		return d, err
	case status == "deallocated":
		d.Ended = true
		d.Denials, err = fs.uint("denials", 10, 64)
		return d, err
	case status == "allocated":
		pid, err := fs.uint("pid", 10, 31)
		d.PID = int(pid)
		return d, err
	}
	return d, fmt.Errorf("cannot parse audit record: domain status %q", status)
}

// process reads who made a system call, from its own record or seccomp's.
func (fs fields) process() (p Process, err error) {
	pid, err := fs.uint("pid", 10, 31)
	if err != nil {
		return p, err
	}
	p.PID = int(pid)
	nr, err := fs.int("syscall")
	if err != nil {
		return p, err
	}
	p.Syscall = int(nr)
	if p.Arch, err = fs.arch(); err != nil {
		return p, err
	}
	if fs.has("ppid") {
		parent, err := fs.uint("ppid", 10, 31)
		if err != nil {
			return p, err
		}
		p.Parent = int(parent)
	}
	if fs.has("exit") {
		if p.Exit, err = fs.int("exit"); err != nil {
			return p, err
		}
	}
	if p.Comm, err = fs.text("comm"); err != nil {
		return p, err
	}
	p.Exe, err = fs.text("exe")
	return p, err
}

// arch reads the architecture of a system call, the kernel's AUDIT_ARCH number.
func (fs fields) arch() (string, error) {
	n, err := fs.uint("arch", 16, 32)
	switch n {
	case 0xc000003e:
		return "x86_64", err
	case 0xc00000b7:
		return "aarch64", err
	}
	return strconv.FormatUint(n, 16), err
}

// markPrefix is how our own marks begin.
const markPrefix = "berth-"

func (fs fields) mark() (uint64, error) {
	raw, err := fs.get("msg")
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(strings.Trim(raw, "'"), markPrefix)
	if !ok {
		return 0, errors.New("cannot parse audit record: no mark of ours")
	}
	return strconv.ParseUint(number, 10, 64)
}

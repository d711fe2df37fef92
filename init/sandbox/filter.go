package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"github.com/berthos/berth/init/seccomp"
	"golang.org/x/sys/unix"
)

// A filter is an array of 8-byte instructions, at most 4096 of them.
const (
	instruction = 8
	maxFilter   = 4096 * instruction
)

// filters are the seccomp programs that apply to the app. Package seccomp says
// what each is for.
type filters struct {
	Allow  []byte `json:"allow"`
	Deny   []byte `json:"deny"`
	NoUnix []byte `json:"no_unix"`
}

// readFilters reads the filters of the policy's class from the verified root,
// before the app's tree replaces it.
func (e *enforcer) readFilters() error {
	p, err := seccomp.For(seccomp.Class(e.policy.Class))
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		into *[]byte
	}{{p.Class.AllowFile(), &e.Filters.Allow}, {p.Class.DenyFile(), &e.Filters.Deny}, {seccomp.NoUnixFile, &e.Filters.NoUnix}} {
		if *f.into, err = readFilter(f.name); err != nil {
			return err
		}
	}
	return nil
}

func readFilter(name string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(seccomp.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("cannot read seccomp filter: %w", err)
	}
	if len(raw) == 0 || len(raw)%instruction != 0 || len(raw) > maxFilter {
		return nil, fmt.Errorf("cannot use seccomp filter %s: %d bytes are not 1 to %d instructions of %d bytes", name, len(raw), maxFilter/instruction, instruction)
	}
	return raw, nil
}

// loadSeccomp loads the filters, also into the threads that will not live to
// see the app. The last comes last because it refuses any further one.
func loadSeccomp(e *enforcer) (string, error) {
	detail := "class " + e.policy.Class
	if err := loadFilter(e.Filters.Allow, 0); err != nil {
		return "", err
	}
	if e.noUnix() {
		detail += ", no unix sockets"
		if err := loadFilter(e.Filters.NoUnix, unix.SECCOMP_FILTER_FLAG_LOG); err != nil {
			return "", err
		}
	}
	if err := loadFilter(e.Filters.Deny, unix.SECCOMP_FILTER_FLAG_LOG); err != nil {
		return "", err
	}
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil || mode != unix.SECCOMP_MODE_FILTER {
		return "", fmt.Errorf("cannot load seccomp filters: mode is %d (%v)", mode, err)
	}
	return detail, nil
}

func loadFilter(raw []byte, flags uintptr) error {
	program := make([]unix.SockFilter, len(raw)/instruction)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&program[0])), len(raw)), raw)
	head := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	flags |= unix.SECCOMP_FILTER_FLAG_TSYNC
	thread, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&head)))
	if errno != 0 {
		return fmt.Errorf("cannot load seccomp filter: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("cannot load seccomp filter: thread %d does not take it", thread)
	}
	return nil
}

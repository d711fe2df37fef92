package berth

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/berthos/berth/sdk/protocol"
	"golang.org/x/sys/unix"
)

// Errorf returns an error that its caller sees with the given code, one of the
// protocol.Code constants. Without it an error of an export has CodeSystem if a
// system call is its cause, else CodeFailed.
func Errorf(code, format string, args ...any) error {
	return &codedError{code: code, err: fmt.Errorf(format, args...)}
}

// Writing marks an error as one of an operation that wanted to write, so that a
// refusal is explained as such. nil stays nil.
func Writing(err error) error { return wanting(protocol.AccessWrite, err) }

// Reading marks an error as one of an operation that wanted to read.
func Reading(err error) error { return wanting(protocol.AccessRead, err) }

type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

type accessError struct {
	access string
	err    error
}

func (e *accessError) Error() string { return e.err.Error() }
func (e *accessError) Unwrap() error { return e.err }

func wanting(access string, err error) error {
	if err == nil {
		return nil
	}
	return &accessError{access: access, err: err}
}

// ToError returns what a caller sees of an export's error. Several failed calls
// (ReadFiles, say) can be reported in one result this way.
func ToError(err error) *protocol.Error {
	var said *protocol.Error
	if errors.As(err, &said) {
		e := *said
		e.Message = err.Error()
		return &e
	}
	var coded *codedError
	if errors.As(err, &coded) {
		return &protocol.Error{Code: coded.code, Message: err.Error()}
	}
	e := systemError(err)
	e.Message = err.Error()
	return e
}

// systemError finds the failed system call in err's chain.
func systemError(err error) *protocol.Error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &protocol.Error{Code: protocol.CodeFailed}
	}
	e := &protocol.Error{Code: protocol.CodeSystem, Errno: unix.ErrnoName(errno)}
	if e.Errno == "" {
		e.Errno = fmt.Sprintf("errno %d", int(errno))
	}
	var access *accessError
	if errors.As(err, &access) {
		e.Access = access.access
	}
	var (
		path *fs.PathError
		link *os.LinkError
		call *os.SyscallError
		conn *net.OpError
	)
	switch {
	case errors.As(err, &path):
		e.Op, e.Path = callName(path.Op), path.Path
	case errors.As(err, &link):
		e.Op, e.Path, e.NewPath = callName(link.Op), link.Old, link.New
	case errors.As(err, &call):
		e.Op = call.Syscall
		if errors.As(err, &conn) && conn.Addr != nil {
			e.Path = conn.Addr.String()
		}
	}
	return e
}

// callName gives the system call behind a name of Go's os package that is none.
func callName(op string) string {
	switch op {
	case "remove":
		return "unlink"
	case "readdirent", "readdir":
		return "getdents64"
	case "openfdat":
		return "openat"
	case "sync":
		return "fsync"
	}
	return op
}

package sandbox

import (
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"
)

// stepError names the step that an error stopped.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("step %s: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

// reporter writes Report lines to a descriptor. It uses no os.File: the
// descriptor is passed on to another process by number.
type reporter struct{ fd int }

func (r reporter) send(msg Report) error {
	line, err := json.Marshal(msg)
	if err != nil {
		return fmt.Errorf("cannot encode report: %w", err)
	}
	line = append(line, '\n')
	for len(line) > 0 {
		n, err := unix.Write(r.fd, line)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot write report: %w", err)
		}
		line = line[n:]
	}
	return nil
}

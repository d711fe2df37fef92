// Package hint owns errors of the host that also say what their reader can do.
package hint

import (
	"errors"
	"fmt"
)

// Error is an error with the line that is printed under it.
type Error struct {
	err  error
	hint string
}

// Errorf is fmt.Errorf with a hint.
func Errorf(hint, format string, args ...any) error {
	return &Error{err: fmt.Errorf(format, args...), hint: hint}
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the error without its hint.
func (e *Error) Unwrap() error { return e.err }

// Hint returns the line to print under the error.
func (e *Error) Hint() string { return e.hint }

// Of returns the hint of err or of what it wraps, or "".
func Of(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

package link

import (
	"io"
	"time"
)

// Conn is the byte stream below a session: a net.Conn or an *os.File of a
// pollable device. SetReadDeadline must wake a blocked Read.
type Conn interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
}

// past is a deadline that has always been exceeded.
func past() time.Time { return time.Unix(1, 0) }

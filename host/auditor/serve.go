package auditor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine/keeper"
)

// signEvery is how long records may wait for the disk and for a signed head.
const signEvery = time.Second

// Main is the whole life of an auditor. The program calls it when its first
// argument is Arg, and exits with the result.
func Main() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM) // it ends after whom it serves
	conn, err := keeper.Inherited(fdRecords)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := serve(conn); err != nil {
		return 1 // whom it served knows
	}
	return 0
}

// serve takes orders until the other end is gone.
func serve(conn net.Conn) error {
	buf := make([]byte, maxPacket+1)
	first, err := read(conn, buf)
	if err != nil {
		return err
	}
	l, err := begin(first.Folder)
	if err := reply(conn, 0, err); err != nil || l == nil {
		return errors.Join(err, conn.Close())
	}
	defer l.Close()
	for since := (time.Time{}); ; { // when the oldest unsigned record was written
		deadline := time.Time{}
		if !since.IsZero() {
			deadline = since.Add(signEvery)
		}
		_ = conn.SetReadDeadline(deadline)
		o, err := read(conn, buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// What cannot be secured now is tried again later; a record that
			// depends on it asks for it, and is told.
			if since = time.Now(); l.Sync() == nil {
				since = time.Time{}
			}
			continue
		}
		if err != nil || o.Append == nil {
			return err
		}
		seq, err := l.Append(*o.Append)
		if since.IsZero() {
			since = time.Now()
		}
		if err == nil && o.Sync {
			if err = l.Sync(); err == nil {
				since = time.Time{}
			}
		}
		if err := reply(conn, seq, err); err != nil {
			return err
		}
	}
}

// begin opens the trail and gives up everything else.
func begin(folder string) (*audit.Log, error) {
	if folder == "" {
		return nil, errors.New("cannot keep the audit trail: no folder was named")
	}
	l, err := audit.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := confine(folder); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot confine the auditor: %w", err), l.Close())
	}
	return l, nil
}

func read(conn net.Conn, buf []byte) (o order, err error) {
	n, err := conn.Read(buf)
	switch {
	case err != nil:
		return order{}, err
	case n == 0:
		return order{}, io.EOF
	case n > maxPacket:
		return order{}, errors.New("a packet is too long")
	}
	return o, strict(buf[:n], &o)
}

func reply(conn net.Conn, seq int64, err error) error {
	a := answer{Seq: seq}
	if err != nil {
		a = answer{Error: err.Error(), Hint: hint.Of(err)}
	}
	return write(conn, a)
}

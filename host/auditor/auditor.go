// Package auditor owns the process that writes the audit trail. It holds the
// trail's key and takes typed records of limited size from the monitor, which
// parses what guests say and holds no key. A second life of the program.
package auditor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/host/hint"
)

// Arg is the first argument by which a program knows that it is an auditor.
const Arg = "__auditor"

const (
	fdRecords = 3
	// maxPacket is the size of a record on its way, in bytes.
	maxPacket = 128 << 10
	// startWithin and answerWithin bound how long an auditor may take: for the
	// disk, mostly.
	startWithin  = 20 * time.Second
	answerWithin = 20 * time.Second
)

// order is one packet to the auditor. Exactly one field is set.
type order struct {
	Folder string        `json:"folder,omitempty"` // first, and once
	Append *audit.Record `json:"append,omitempty"`
	Sync   bool          `json:"sync,omitempty"` // with Append: answer once it is on the disk
}

// answer is one packet from it.
type answer struct {
	Seq   int64  `json:"seq"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Client is a connection to an auditor, which ends with the last of its copies.
// It is safe for concurrent use.
type Client struct {
	mu   sync.Mutex // one order and its answer at a time
	conn *net.UnixConn
	err  error // after this nothing is recorded any more
}

// Start runs an auditor for the trail in a folder and returns the descriptor for
// NewClient, here or in a child.
func Start(folder string) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot start the auditor: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "auditor"), os.NewFile(uintptr(pair[1]), "records")
	defer theirs.Close()
	cmd := exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"berth-auditor", Arg}, Dir: "/",
		Env: []string{}, ExtraFiles: []*os.File{theirs}, // and no stderr, which would be held open as long as it lives
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // a terminal's Ctrl-C is not for it
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("cannot start the auditor: %w", err)
	}
	go func() { _ = cmd.Wait() }() // it ends when nobody holds ours any more
	c, err := NewClient(ours)
	if err == nil {
		_, err = c.ask(order{Folder: folder}, startWithin)
		c.conn.Close()
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// NewClient speaks over a descriptor of Start, which stays open.
func NewClient(f *os.File) (*Client, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the auditor: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("cannot reach the auditor: the descriptor is no socket of its")
	}
	return &Client{conn: unix}, nil
}

// Append records, and returns when it is written. An error means that nothing
// was, and of a lost auditor that nothing ever will be.
func (c *Client) Append(r audit.Record) (seq int64, err error) {
	return c.ask(order{Append: &r}, answerWithin)
}

// AppendSync does the same, and returns when it is on the disk.
func (c *Client) AppendSync(r audit.Record) (seq int64, err error) {
	return c.ask(order{Append: &r, Sync: true}, answerWithin)
}

func (c *Client) ask(o order, within time.Duration) (seq int64, err error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return 0, fmt.Errorf("cannot write to the audit trail: %w", err)
	}
	if len(raw) > maxPacket {
		return 0, fmt.Errorf("cannot write to the audit trail: a record of %d bytes", len(raw))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	a, err := c.exchange(raw, within)
	if err != nil {
		// What the next answer would belong to, nobody knows.
		c.err = fmt.Errorf("cannot write to the audit trail: the auditor is gone: %w", err)
		c.conn.Close()
		return 0, c.err
	}
	if a.Error != "" {
		return 0, hint.Errorf(a.Hint, "%s", a.Error)
	}
	return a.Seq, nil
}

func (c *Client) exchange(raw []byte, within time.Duration) (a answer, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return answer{}, err
	}
	if _, err := c.conn.Write(raw); err != nil {
		return answer{}, err
	}
	buf := make([]byte, maxPacket)
	n, err := c.conn.Read(buf)
	if err != nil {
		return answer{}, err
	}
	if n == 0 {
		return answer{}, io.ErrUnexpectedEOF
	}
	return a, strict(buf[:n], &a)
}

// strict reads one packet.
func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one value in a packet")
	}
	return nil
}

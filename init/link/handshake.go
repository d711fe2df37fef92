package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Limits of the handshake, in bytes.
const (
	MaxHandshakeLine = 1 << 10
	MaxJunk          = 64 << 10 // what either side skips before the other's line
)

// protocolName is the value of the key "berth" in both handshake lines.
const protocolName = "link"

// hostHello is the line of the host.
type hostHello struct {
	Berth    string `json:"berth"`
	Versions []int  `json:"versions"`
	Nonce    string `json:"nonce"`
}

// guestHello is the answer of the guest: a version or an error.
type guestHello struct {
	Berth   string `json:"berth"`
	Version int    `json:"version,omitempty"`
	Nonce   string `json:"nonce,omitempty"`
	Error   string `json:"error,omitempty"`
}

// ErrVersion is wrapped when host and guest share no link version.
var ErrVersion = errors.New("no common link version")

// Host does the host's half of the handshake and starts a session as the side
// that opens control, call and code streams. When it fails, conn is still the
// caller's; after that the session owns it.
func Host(ctx context.Context, conn Conn) (*Session, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, fmt.Errorf("cannot open link: %w", err)
	}
	return host(ctx, conn, []int{Version}, nonce)
}

func host(ctx context.Context, conn Conn, versions []int, nonce string) (*Session, error) {
	lines, done := newLines(ctx, conn)
	defer done()
	hello, err := json.Marshal(hostHello{protocolName, versions, nonce})
	if err != nil {
		return nil, fmt.Errorf("cannot open link: %w", err)
	}
	// The first newline ends whatever an earlier host left unfinished.
	if _, err := conn.Write(append(append([]byte("\n"), hello...), '\n')); err != nil {
		return nil, fmt.Errorf("cannot open link: cannot send the handshake: %w", err)
	}
	version, err := awaitGuest(lines, versions, nonce)
	if err != nil {
		return nil, fmt.Errorf("cannot open link: %w", orContext(ctx, err))
	}
	return newSession(conn, version, lines.rest(), true), nil
}

// awaitGuest skips lines until one answers our nonce. What a guest could not
// read it answers without a nonce; that is remembered, since it may be the
// only explanation there will be.
func awaitGuest(lines *lines, versions []int, nonce string) (int, error) {
	var hint string
	for {
		line, err := lines.next()
		if err != nil {
			if hint != "" {
				err = fmt.Errorf("%w (the guest said: %s)", err, hint)
			}
			return 0, err
		}
		var h guestHello
		if json.Unmarshal(line, &h) != nil || h.Berth != protocolName {
			continue
		}
		switch {
		case h.Nonce != nonce:
			hint = h.Error
		case h.Error != "":
			return 0, fmt.Errorf("the guest refused: %s", h.Error)
		case !slices.Contains(versions, h.Version):
			return 0, fmt.Errorf("%w: host offered %v, guest chose %d", ErrVersion, versions, h.Version)
		default:
			return h.Version, nil
		}
	}
}

// Guest waits for a host on conn, answers its handshake and starts a session
// as the side that opens log and share streams. Lines that are no handshake
// are skipped up to MaxJunk bytes. It returns io.EOF, wrapped, when the other
// end closed before it spoke. When it fails, conn is still the caller's.
func Guest(ctx context.Context, conn Conn) (*Session, error) {
	return guest(ctx, conn, []int{Version})
}

func guest(ctx context.Context, conn Conn, versions []int) (*Session, error) {
	lines, done := newLines(ctx, conn)
	defer done()
	h, err := awaitHost(lines)
	if err != nil {
		if errors.Is(err, errJunk) {
			_ = answer(conn, guestHello{Error: err.Error()})
		}
		return nil, fmt.Errorf("cannot accept link: %w", orContext(ctx, err))
	}
	version := 0
	for _, v := range h.Versions {
		if slices.Contains(versions, v) {
			version = max(version, v)
		}
	}
	if version == 0 {
		err := fmt.Errorf("%w: host speaks %v, guest speaks %v", ErrVersion, h.Versions, versions)
		_ = answer(conn, guestHello{Nonce: h.Nonce, Error: err.Error()})
		return nil, fmt.Errorf("cannot accept link: %w", err)
	}
	if err := answer(conn, guestHello{Version: version, Nonce: h.Nonce}); err != nil {
		return nil, fmt.Errorf("cannot accept link: cannot send the handshake: %w", err)
	}
	return newSession(conn, version, lines.rest(), false), nil
}

func awaitHost(lines *lines) (hostHello, error) {
	for {
		line, err := lines.next()
		if err != nil {
			return hostHello{}, err
		}
		var h hostHello
		if json.Unmarshal(line, &h) == nil && h.Berth == protocolName && validNonce(h.Nonce) {
			return h, nil
		}
	}
}

func answer(conn io.Writer, h guestHello) error {
	h.Berth = protocolName
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}

func newNonce() (string, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	return hex.EncodeToString(raw), nil
}

func validNonce(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) >= 8 && len(raw) <= 32
}

// orContext prefers the reason why ctx ended over the timeout that it caused.
func orContext(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// lines reads lines before a session exists, without losing what follows them.
type lines struct {
	conn Conn
	buf  []byte
	junk int
	skip bool // the current line is longer than any handshake
}

// errJunk is wrapped when more than MaxJunk bytes came and none were a handshake.
var errJunk = errors.New("no handshake in what was received")

// newLines ties reads on conn to ctx until done is called.
func newLines(ctx context.Context, conn Conn) (l *lines, done func()) {
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(past())
		close(finished)
	})
	return &lines{conn: conn}, func() {
		if !stop() {
			<-finished
		}
		_ = conn.SetReadDeadline(time.Time{})
	}
}

// next returns the next line that is not blank and not too long.
func (l *lines) next() ([]byte, error) {
	for {
		if line, ok := l.cut(); ok {
			return line, nil
		}
		if l.junk > MaxJunk {
			return nil, fmt.Errorf("%w: %d bytes", errJunk, l.junk)
		}
		chunk := make([]byte, MaxHandshakeLine)
		n, err := l.conn.Read(chunk)
		l.buf = append(l.buf, chunk[:n]...)
		l.junk += n
		if n == 0 && err != nil {
			return nil, fmt.Errorf("cannot read the handshake: %w", err)
		}
	}
}

// cut takes one usable line out of the buffer.
func (l *lines) cut() ([]byte, bool) {
	for {
		i := bytes.IndexByte(l.buf, '\n')
		if i < 0 {
			if len(l.buf) > MaxHandshakeLine {
				l.buf, l.skip = nil, true
			}
			return nil, false
		}
		line, skip := bytes.TrimSpace(l.buf[:i]), l.skip
		l.buf, l.skip = l.buf[i+1:], false
		if !skip && len(line) > 0 && len(line) <= MaxHandshakeLine {
			return line, true
		}
	}
}

// rest returns the bytes that came after the last line.
func (l *lines) rest() []byte { return l.buf }

package monitor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/berthos/berth/apps/appimage"
)

// Limits of one message, in bytes, checked before memory is taken for it.
const (
	maxOrder  = 4 << 20           // what the parent says, as JSON
	maxImage  = appimage.MaxBytes // an app's code, behind an order
	maxReport = 1 << 20           // what the monitor says, as JSON
)

// A message is the length of its JSON and of the bytes behind it, both as 32
// bits in network order, and then these two.
const headerSize = 8

// channel is one end of the inherited socket. Writes are whole messages.
type channel struct {
	conn io.ReadWriteCloser

	mu sync.Mutex // guards writing; the other end is berth too, and reads
}

// send writes one message.
func (c *channel) send(v any, blob []byte) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(blob) > maxImage {
		return fmt.Errorf("more than %d bytes", maxImage)
	}
	head := make([]byte, headerSize, headerSize+len(raw))
	binary.BigEndian.PutUint32(head, uint32(len(raw)))
	binary.BigEndian.PutUint32(head[4:], uint32(len(blob)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.conn.Write(append(head, raw...)); err != nil {
		return err
	}
	_, err = c.conn.Write(blob)
	return err
}

// receive reads one message, strictly. io.EOF means that the other end is gone.
func receive(r io.Reader, v any, most, mostBlob uint32) (blob []byte, err error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, extra := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	if n > most || extra > mostBlob {
		return nil, fmt.Errorf("message of %d and %d bytes: at most %d and %d are allowed", n, extra, most, mostBlob)
	}
	raw, err := take(r, n)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value in a message")
	}
	return take(r, extra)
}

// take reads exactly n bytes; memory grows with what has come.
func take(r io.Reader, n uint32) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b.Bytes(), nil
}

package wire

import "encoding/binary"

// Decoder reads the fields of one message's body. It never reads past the
// body: what is missing reads as zero and is remembered, so that a handler
// asks once, with OK, after it has read everything.
type Decoder struct {
	b     []byte
	short bool
}

// NewDecoder returns a decoder over the body of a message (without header).
func NewDecoder(body []byte) *Decoder { return &Decoder{b: body} }

// OK reports that every field was there and nothing is left over.
func (d *Decoder) OK() bool { return !d.short && len(d.b) == 0 }

// Left is how many bytes have not been read.
func (d *Decoder) Left() int { return len(d.b) }

func (d *Decoder) take(n int) []byte {
	if n > len(d.b) {
		d.short, d.b = true, nil
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// U8 reads one byte.
func (d *Decoder) U8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

// U16 reads two bytes.
func (d *Decoder) U16() uint16 {
	if v := d.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

// U32 reads four bytes.
func (d *Decoder) U32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

// U64 reads eight bytes.
func (d *Decoder) U64() uint64 {
	if v := d.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// String reads a counted string. Its bytes are any bytes.
func (d *Decoder) String() string { return string(d.take(int(d.U16()))) }

// Data reads a payload counted by four bytes. It aliases the message.
func (d *Decoder) Data() []byte {
	n := d.U32()
	if uint64(n) > uint64(len(d.b)) {
		d.short, d.b = true, nil
		return nil
	}
	return d.take(int(n))
}

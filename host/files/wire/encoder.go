package wire

import "encoding/binary"

// Encoder builds one message in a buffer that is used again and again.
type Encoder struct{ b []byte }

// Use makes b the memory of the messages to come, from the next Reset on.
func (e *Encoder) Use(b []byte) { e.b = b[:0] }

// Reset begins a message of type t.
func (e *Encoder) Reset(t Type, tag uint16) {
	e.b = append(e.b[:0], 0, 0, 0, 0, byte(t), byte(tag), byte(tag>>8))
}

// U8 writes one byte.
func (e *Encoder) U8(v uint8) { e.b = append(e.b, v) }

// U16 writes two bytes.
func (e *Encoder) U16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }

// U32 writes four bytes.
func (e *Encoder) U32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }

// U64 writes eight bytes.
func (e *Encoder) U64(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }

// String writes a counted string; callers keep to 65535 bytes.
func (e *Encoder) String(s string) {
	e.U16(uint16(len(s)))
	e.b = append(e.b, s...)
}

// QID writes a QID.
func (e *Encoder) QID(q QID) {
	e.U8(q.Type)
	e.U32(q.Version)
	e.U64(q.Path)
}

// Data writes a payload counted by four bytes.
func (e *Encoder) Data(p []byte) {
	e.U32(uint32(len(p)))
	e.b = append(e.b, p...)
}

// Payload appends count[4] and room for n bytes, lets fill write into the
// room, and keeps as many bytes as fill says: no second copy of file content.
func (e *Encoder) Payload(n int, fill func(p []byte) (int, error)) error {
	at := len(e.b)
	e.U32(0)
	if need := len(e.b) + n; need > cap(e.b) {
		e.b = append(make([]byte, 0, need), e.b...)
	}
	room := e.b[len(e.b) : len(e.b)+n]
	got, err := fill(room)
	if err != nil {
		return err
	}
	e.b = e.b[:len(e.b)+got]
	binary.LittleEndian.PutUint32(e.b[at:], uint32(got))
	return nil
}

// Len is the size of the message so far.
func (e *Encoder) Len() int { return len(e.b) }

// Frame fixes the size field and returns the message.
func (e *Encoder) Frame() []byte {
	binary.LittleEndian.PutUint32(e.b, uint32(len(e.b)))
	return e.b
}

// DirentSize is what one directory entry measures beside its name.
const DirentSize = 13 + 8 + 1 + 2

// AppendDirent appends one directory entry: qid[13] offset[8] type[1] name[s].
func AppendDirent(b []byte, q QID, next uint64, typ uint8, name string) []byte {
	b = append(b, q.Type)
	b = binary.LittleEndian.AppendUint32(b, q.Version)
	b = binary.LittleEndian.AppendUint64(b, q.Path)
	b = binary.LittleEndian.AppendUint64(b, next)
	b = append(b, typ)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	return append(b, name...)
}

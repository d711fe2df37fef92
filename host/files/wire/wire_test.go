package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestFieldsComeBack(t *testing.T) {
	var e Encoder
	e.Reset(Twrite, 7)
	e.U8(1)
	e.U16(2)
	e.U32(3)
	e.U64(4)
	e.String("a\x00\xff/")
	e.QID(QID{QTDir, 5, 6})
	e.Data([]byte("data"))
	f := e.Frame()
	size, typ, tag := Header(f)
	if int(size) != len(f) || typ != Twrite || tag != 7 {
		t.Errorf("header %d %d %d", size, typ, tag)
	}
	d := NewDecoder(f[HeaderSize:])
	if d.U8() != 1 || d.U16() != 2 || d.U32() != 3 || d.U64() != 4 || d.String() != "a\x00\xff/" ||
		d.U8() != QTDir || d.U32() != 5 || d.U64() != 6 || string(d.Data()) != "data" || !d.OK() {
		t.Error("other fields came back")
	}
}

func TestWhatIsMissingIsNoticed(t *testing.T) {
	for name, read := range map[string]func(*Decoder){
		"u8":     func(d *Decoder) { d.U8(); d.U8(); d.U8(); d.U8() },
		"u32":    func(d *Decoder) { d.U32() },
		"u64":    func(d *Decoder) { d.U64() },
		"string": func(d *Decoder) { _ = d.String() },
		"data":   func(d *Decoder) { d.Data() },
		"rest":   func(d *Decoder) { d.U8() },
	} {
		d := NewDecoder([]byte{200, 0, 0})
		read(d)
		if d.OK() {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestPayload(t *testing.T) {
	var e Encoder
	e.Use(make([]byte, 100))
	e.Reset(Tread+1, 1)
	if err := e.Payload(1000, func(p []byte) (int, error) { return copy(p, "abc"), nil }); err != nil {
		t.Fatal(err)
	}
	if d := NewDecoder(e.Frame()[HeaderSize:]); string(d.Data()) != "abc" || !d.OK() {
		t.Errorf("%q", e.Frame())
	}
	if err := e.Payload(1, func([]byte) (int, error) { return 0, errors.ErrUnsupported }); err != errors.ErrUnsupported {
		t.Errorf("error %v", err)
	}
}

func TestDirentSize(t *testing.T) {
	if b := AppendDirent(nil, QID{}, 1, 2, "name"); len(b) != DirentSize+4 || !bytes.HasSuffix(b, []byte("\x04\x00name")) {
		t.Errorf("%q", b)
	}
}

// Whatever the bytes are, a decoder reads within them.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{1, 0, 'x', 255, 255, 255, 255}, []byte{4, 5, 2})
	f.Fuzz(func(t *testing.T, body, script []byte) {
		d, read := NewDecoder(body), 0
		for _, op := range script {
			switch op % 6 {
			case 0:
				d.U8()
				read++
			case 1:
				d.U16()
				read += 2
			case 2:
				d.U32()
				read += 4
			case 3:
				d.U64()
				read += 8
			case 4:
				read += 2 + len(d.String())
			case 5:
				read += 4 + len(d.Data())
			}
		}
		if d.OK() != (read == len(body)) && (d.OK() || read == len(body) && !d.short) {
			t.Errorf("OK %v after reading %d of %d bytes", d.OK(), read, len(body))
		}
	})
}

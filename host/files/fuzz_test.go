//go:build linux

package files

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/host/files/wire"
)

// FuzzSession gives a session, after a sane start, any sequence of messages.
// It must not end the process, leave the folder, or leave anything open.
func FuzzSession(f *testing.F) {
	msg := func(t wire.Type, body ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(wire.HeaderSize+len(body)))
		return append(append(b, byte(t), 1, 0), body...)
	}
	f.Add(msg(wire.Twalk, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 'f'))
	f.Add(msg(wire.Tlcreate, 0, 0, 0, 0, 1, 0, 'n', 2, 0, 0, 0, 0xff, 1, 0, 0, 0, 0, 0, 0))
	f.Add(append(msg(wire.Tlopen, 0, 0, 0, 0, 0, 0, 0, 0), msg(wire.Treaddir, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0)...))
	f.Add(msg(wire.Trenameat, 0, 0, 0, 0, 1, 0, 'f', 0, 0, 0, 0, 2, 0, '.', '.'))
	f.Fuzz(func(t *testing.T, stream []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "ws")
		if err := os.MkdirAll(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		g := serveDir(t, dir, nil)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			io.Copy(io.Discard, g.conn)
		}()
		g.conn.Write(stream)
		g.conn.(interface{ CloseWrite() error }).CloseWrite()
		<-drained
		g.done <- <-g.done
		if list, _ := os.ReadDir(top); len(list) != 1 {
			t.Errorf("beside the folder there is %v", list)
		}
		if left := descriptors(t, dir); len(left) > 0 {
			t.Errorf("still open: %q", left)
		}
	})
}

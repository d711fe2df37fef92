//go:build linux

package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// guest speaks raw 9P to a server, as a guest's root could.
type guest struct {
	t    testing.TB
	conn net.Conn
	dir  string // the folder on the host
	done chan error
	next uint32
	out  wire.Encoder
}

const (
	guestUID = 10000
	guestGID = 10000
	rootFID  = 0
)

// serve starts a server on a new folder and attaches to it.
func serve(t testing.TB, change func(*Options)) *guest {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return serveDir(t, dir, change)
}

func serveDir(t testing.TB, dir string, change func(*Options)) *guest {
	t.Helper()
	g := dial(t, context.Background(), dir, change)
	g.version(wire.MaxSize)
	g.must(g.attach(rootFID))
	g.next = 1
	return g
}

// dial starts a server and says nothing yet.
func dial(t testing.TB, ctx context.Context, dir string, change func(*Options)) *guest {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Root: dir, UID: guestUID, GID: guestGID}
	if change != nil {
		change(&o)
	}
	g := &guest{t: t, conn: fdConn(t, pair[0]), dir: dir, done: make(chan error, 1)}
	server := fdConn(t, pair[1])
	go func() { g.done <- Serve(ctx, server, o) }()
	t.Cleanup(func() {
		g.conn.Close()
		<-g.done
	})
	return g
}

func fdConn(t testing.TB, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "pair")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *guest) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// want fails unless err is the errno.
func (g *guest) want(what string, err error, errno unix.Errno) {
	g.t.Helper()
	if err != errno {
		g.t.Errorf("%s: %v, want %v", what, err, errno)
	}
}

// send writes one request. Fields are uint8, uint16, uint32, uint64, string
// and []byte (a payload with its count).
func (g *guest) send(t wire.Type, tag uint16, fields ...any) error {
	g.out.Reset(t, tag)
	for _, f := range fields {
		switch v := f.(type) {
		case uint8:
			g.out.U8(v)
		case uint16:
			g.out.U16(v)
		case uint32:
			g.out.U32(v)
		case uint64:
			g.out.U64(v)
		case string:
			g.out.String(v)
		case []byte:
			g.out.Data(v)
		default:
			panic(fmt.Sprintf("field %T", f))
		}
	}
	_, err := g.conn.Write(g.out.Frame())
	return err
}

// recv reads one reply; an Rlerror comes back as its errno.
func (g *guest) recv() (wire.Type, uint16, *wire.Decoder, error) {
	var hdr [wire.HeaderSize]byte
	if _, err := io.ReadFull(g.conn, hdr[:]); err != nil {
		return 0, 0, nil, err
	}
	size, t, tag := wire.Header(hdr[:])
	body := make([]byte, size-wire.HeaderSize)
	if _, err := io.ReadFull(g.conn, body); err != nil {
		return 0, 0, nil, err
	}
	d := wire.NewDecoder(body)
	if t == wire.Rlerror {
		return t, tag, nil, unix.Errno(d.U32())
	}
	return t, tag, d, nil
}

// rpc sends a request and returns the fields of its reply.
func (g *guest) rpc(t wire.Type, fields ...any) (*wire.Decoder, error) {
	g.t.Helper()
	if err := g.send(t, 1, fields...); err != nil {
		return nil, err
	}
	got, tag, d, err := g.recv()
	if err == nil && (got != t+1 || tag != 1) {
		g.t.Fatalf("reply of type %d tag %d to a request of type %d", got, tag, t)
	}
	return d, err
}

func (g *guest) call(t wire.Type, fields ...any) error {
	g.t.Helper()
	_, err := g.rpc(t, fields...)
	return err
}

func (g *guest) version(msize uint32) uint32 {
	g.t.Helper()
	g.must(g.send(wire.Tversion, wire.NoTag, msize, wire.Version))
	_, _, d, err := g.recv()
	g.must(err)
	msize = d.U32()
	if v := d.String(); v != wire.Version {
		g.t.Fatalf("version %q", v)
	}
	return msize
}

func (g *guest) attach(fid uint32) error {
	return g.call(wire.Tattach, fid, uint32(wire.NoFID), "root", "", uint32(0))
}

// walk goes from a handle to a new one.
func (g *guest) walk(from uint32, names ...string) (uint32, error) {
	fields := []any{from, g.next, uint16(len(names))}
	for _, n := range names {
		fields = append(fields, n)
	}
	d, err := g.rpc(wire.Twalk, fields...)
	if err != nil {
		return 0, err
	}
	if n := int(d.U16()); n != len(names) {
		return 0, fmt.Errorf("walk found %d of %d names", n, len(names))
	}
	g.next++
	return g.next - 1, nil
}

func (g *guest) mustWalk(names ...string) uint32 {
	g.t.Helper()
	fid, err := g.walk(rootFID, names...)
	if err != nil {
		g.t.Fatalf("walk %q: %v", names, err)
	}
	return fid
}

func (g *guest) open(fid uint32, flags uint32) error { return g.call(wire.Tlopen, fid, flags) }

// create makes a file in a directory and returns its open handle.
func (g *guest) create(dir uint32, name string, flags, mode uint32) (uint32, error) {
	fid, err := g.walk(dir)
	if err != nil {
		return 0, err
	}
	if err := g.call(wire.Tlcreate, fid, name, flags, mode, uint32(0)); err != nil {
		g.clunk(fid)
		return 0, err
	}
	return fid, nil
}

func (g *guest) clunk(fid uint32) error { return g.call(wire.Tclunk, fid) }

func (g *guest) write(fid uint32, off uint64, p []byte) error {
	d, err := g.rpc(wire.Twrite, fid, off, p)
	if err == nil && int(d.U32()) != len(p) {
		return io.ErrShortWrite
	}
	return err
}

func (g *guest) read(fid uint32, off uint64, n uint32) ([]byte, error) {
	d, err := g.rpc(wire.Tread, fid, off, n)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(d.Data()), nil
}

func (g *guest) mkdir(dir uint32, name string) error {
	return g.call(wire.Tmkdir, dir, name, uint32(0o755), uint32(0))
}

func (g *guest) symlink(dir uint32, name, target string) error {
	return g.call(wire.Tsymlink, dir, name, target, uint32(0))
}

func (g *guest) link(dir, fid uint32, name string) error {
	return g.call(wire.Tlink, dir, fid, name)
}

func (g *guest) rename(from uint32, name string, to uint32, newName string) error {
	return g.call(wire.Trenameat, from, name, to, newName)
}

func (g *guest) unlink(dir uint32, name string, flags uint32) error {
	return g.call(wire.Tunlinkat, dir, name, flags)
}

func (g *guest) setattr(fid, valid, mode, uid, gid uint32, size uint64, mtime [2]uint64) error {
	return g.call(wire.Tsetattr, fid, valid, mode, uid, gid, size, mtime[0], mtime[1], mtime[0], mtime[1])
}

func (g *guest) chmod(fid, mode uint32) error {
	return g.setattr(fid, wire.SetMode, mode, 0, 0, 0, [2]uint64{})
}

func (g *guest) truncate(fid uint32, size uint64) error {
	return g.setattr(fid, wire.SetSize, 0, 0, 0, size, [2]uint64{})
}

// attr is what getattr answers, as far as tests look at it.
type attr struct {
	qid            wire.QID
	mode, uid, gid uint32
	nlink, size    uint64
	mtime          [2]uint64
}

func (g *guest) getattr(fid uint32) (a attr, err error) {
	d, err := g.rpc(wire.Tgetattr, fid, uint64(0x3fff))
	if err != nil {
		return a, err
	}
	d.U64()
	a.qid = wire.QID{Type: d.U8(), Version: d.U32(), Path: d.U64()}
	a.mode, a.uid, a.gid, a.nlink = d.U32(), d.U32(), d.U32(), d.U64()
	d.U64()
	a.size = d.U64()
	d.U64()
	d.U64()
	d.U64()
	d.U64()
	a.mtime = [2]uint64{d.U64(), d.U64()}
	return a, nil
}

// list returns the names in a directory, "." and ".." left out.
func (g *guest) list(count uint32, path ...string) (names []string) {
	g.t.Helper()
	fid := g.mustWalk(path...)
	defer g.clunk(fid)
	g.must(g.open(fid, wire.OpenRead))
	for off := uint64(0); ; {
		d, err := g.rpc(wire.Treaddir, fid, off, count)
		g.must(err)
		b := d.Data()
		if len(b) == 0 {
			return names
		}
		if len(b) > int(count) {
			g.t.Fatalf("%d bytes of entries, %d asked for", len(b), count)
		}
		for len(b) > 0 {
			off = binary.LittleEndian.Uint64(b[13:])
			n := int(binary.LittleEndian.Uint16(b[22:]))
			if name := string(b[24 : 24+n]); name != "." && name != ".." {
				names = append(names, name)
			}
			b = b[24+n:]
		}
	}
}

// put makes a file on the host.
func (g *guest) put(name, content string) string {
	g.t.Helper()
	p := filepath.Join(g.dir, name)
	g.must(os.MkdirAll(filepath.Dir(p), 0o755))
	g.must(os.WriteFile(p, []byte(content), 0o644))
	return p
}

// onHost reads a file on the host.
func (g *guest) onHost(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, name))
	g.must(err)
	return string(b)
}

func (g *guest) missing(name string) {
	g.t.Helper()
	if _, err := os.Lstat(filepath.Join(g.dir, name)); !os.IsNotExist(err) {
		g.t.Errorf("%s is on the host (%v)", name, err)
	}
}

//go:build linux

package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// descriptors lists what the process has open below dir.
func descriptors(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		p, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && (p == dir || strings.HasPrefix(p, dir+"/")) {
			list = append(list, p)
		}
	}
	return list
}

func TestNothingStaysOpen(t *testing.T) {
	ways := map[string]func(*guest, context.CancelFunc){
		"the guest hangs up":      func(g *guest, _ context.CancelFunc) { g.conn.Close() },
		"the host ends it":        func(_ *guest, cancel context.CancelFunc) { cancel() },
		"cut in a message":        func(g *guest, _ context.CancelFunc) { g.conn.Write([]byte{9, 0, 0, 0, 120}); g.conn.Close() },
		"nonsense":                func(g *guest, _ context.CancelFunc) { g.conn.Write(bytes.Repeat([]byte{0xff}, 7)) },
		"a new version, then end": func(g *guest, _ context.CancelFunc) { g.version(8192); g.conn.Close() },
	}
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g := dial(t, ctx, dir, nil)
			g.version(wire.MaxSize)
			g.must(g.attach(rootFID))
			g.next = 1
			for _, name := range []string{"a", "b", "c"} {
				fid, err := g.create(rootFID, name, wire.OpenBoth, 0o600)
				g.must(err)
				g.must(g.call(wire.Tlock, fid, uint8(wire.LockWrite), uint32(0), uint64(0), uint64(0), uint32(1), "guest"))
				g.mustWalk(name)
			}
			g.must(g.open(g.mustWalk(), wire.OpenRead))
			if n := len(descriptors(t, dir)); n < 10 {
				t.Fatalf("control: only %d descriptors are open", n)
			}
			end(g, cancel)
			g.done <- <-g.done
			if left := descriptors(t, dir); len(left) > 0 {
				t.Errorf("still open: %q", left)
			}
		})
	}
}

func TestHowItEnds(t *testing.T) {
	g := serve(t, nil)
	g.conn.Close()
	err := <-g.done
	g.done <- err
	if err != nil {
		t.Errorf("the guest hung up: %v, want nil", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g = dial(t, ctx, t.TempDir(), nil)
	cancel()
	err = <-g.done
	g.done <- err
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended: %v", err)
	}
}

// A guest that asks and does not read stops its own session only, and that can
// be ended.
func TestGuestThatDoesNotRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	g := dial(t, ctx, dir, nil)
	g.version(wire.MaxSize)
	g.must(g.attach(rootFID))
	g.put("f", strings.Repeat("x", wire.MaxPayload))
	g.next = 1
	fid := g.mustWalk("f")
	g.must(g.open(fid, wire.OpenRead))
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		for tag := uint16(2); g.send(wire.Tread, tag, fid, uint64(0), uint32(wire.MaxPayload)) == nil; tag++ {
		}
	}()
	// Another session is served meanwhile.
	other := serve(t, nil)
	other.must(other.mkdir(rootFID, "d"))
	cancel()
	<-stuck
	g.done <- <-g.done
	if left := descriptors(t, dir); len(left) > 0 {
		t.Errorf("still open: %q", left)
	}
}

// Messages that no client sends end the session with an error.
func TestBrokenMessages(t *testing.T) {
	header := func(size uint32, typ wire.Type, tag uint16) []byte {
		b := binary.LittleEndian.AppendUint32(nil, size)
		return append(b, byte(typ), byte(tag), byte(tag>>8))
	}
	hello := func(g *guest) { g.version(wire.MaxSize) }
	for name, c := range map[string]struct {
		before func(*guest)
		bytes  []byte
	}{
		"a request before the version": {nil, header(11, wire.Tclunk, 1)},
		"a huge first message":         {nil, header(1<<31, wire.Tversion, wire.NoTag)},
		"a message over the limit":     {hello, header(wire.MaxSize+1, wire.Twrite, 1)},
		"a message of 4 GiB":           {hello, header(0xffffffff, wire.Twrite, 1)},
		"a size without a header":      {hello, header(3, wire.Tclunk, 1)},
		"a version of one byte":        {nil, append(header(8, wire.Tversion, 1), 0)},
		"a tag twice": {hello, append(append(header(wire.HeaderSize+11, wire.Twalk, 7), make([]byte, 11)...),
			append(header(wire.MaxSize, wire.Twrite, 8), make([]byte, 11)...)...)},
	} {
		t.Run(name, func(t *testing.T) {
			g := dial(t, t.Context(), t.TempDir(), nil)
			if c.before != nil {
				c.before(g)
			}
			g.conn.Write(c.bytes)
			g.conn.(*net.UnixConn).CloseWrite()
			io.Copy(io.Discard, g.conn)
			err := <-g.done
			g.done <- err
			if err == nil {
				t.Error("the session ended without an error")
			}
		})
	}
}

// Fields that do not fill their message, or more than fill it, are refused and
// the session goes on.
func TestShortAndLongBodies(t *testing.T) {
	g := serve(t, nil)
	for typ := range ops {
		g.want("an empty body", g.call(typ), unix.EINVAL)
		g.want("a body that is too long", g.call(typ, strings.Repeat("x", 3000)), unix.EINVAL)
	}
	g.want("more names than a walk may have", g.call(wire.Twalk, uint32(0), uint32(9), uint16(65535)), unix.EINVAL)
	g.want("a count beyond the message", g.call(wire.Twrite, uint32(0), uint64(0), uint32(1<<30)), unix.EINVAL)
	g.must(g.mkdir(rootFID, "control"))
}

func TestLimits(t *testing.T) {
	g := serve(t, func(o *Options) { o.MaxFIDs = 100; o.MaxOpen = 80 })
	g.put("f", "x")
	var fids []uint32
	for len(fids) < 200 {
		fid, err := g.walk(rootFID, "f")
		if err != nil {
			g.want("walk at the limit", err, unix.ENFILE)
			break
		}
		fids = append(fids, fid)
	}
	if n := len(descriptors(t, g.dir)); n > 80 || len(fids) > 80 || len(fids) < 60 {
		t.Errorf("%d handles, %d descriptors", len(fids), n)
	}
	g.want("open at the limit", g.open(fids[0], wire.OpenRead), unix.ENFILE)
	for _, f := range fids[10:] {
		g.must(g.clunk(f))
	}
	g.must(g.open(fids[0], wire.OpenRead))

	// Copies of one handle cost no descriptor, so they have a limit of their own.
	n := 0
	for ; n < 200; n++ {
		if _, err := g.walk(rootFID); err != nil {
			g.want("copy at the limit", err, unix.ENFILE)
			break
		}
	}
	if n > 100 || n < 80 {
		t.Errorf("%d copies", n)
	}
}

func TestMessageSizeIsCapped(t *testing.T) {
	g := dial(t, t.Context(), t.TempDir(), nil)
	if got := g.version(1 << 31); got != wire.MaxSize {
		t.Errorf("agreed on %d bytes", got)
	}
	if got := g.version(8192); got != 8192 {
		t.Errorf("agreed on %d bytes", got)
	}
	g.must(g.attach(rootFID))
	g.next = 1
	g.put("f", strings.Repeat("x", 100000))
	fid := g.mustWalk("f")
	g.must(g.open(fid, wire.OpenRead))
	p, err := g.read(fid, 0, 100000)
	g.must(err)
	if len(p) != 8192-wire.IOHeader {
		t.Errorf("an answer of %d bytes", len(p))
	}
	g.must(g.send(wire.Tversion, wire.NoTag, uint32(8192), "9P2000.u"))
	_, _, d, err := g.recv()
	g.must(err)
	d.U32()
	if v := d.String(); v != "unknown" {
		t.Errorf("to 9P2000.u the answer is %q", v)
	}
	_, err = g.getattr(fid)
	g.want("a handle from before the version", err, unix.EBADF)
}

// What a guest can cost in memory is bounded, however much it asks at once.
func TestMemoryOfABurst(t *testing.T) {
	g := serve(t, nil)
	fid, err := g.create(rootFID, "f", wire.OpenBoth, 0o600)
	g.must(err)
	data := make([]byte, wire.MaxPayload)
	replies := make(chan error)
	const n = 300
	go func() {
		for range n {
			if _, _, _, err := g.recv(); err != nil {
				replies <- err
				return
			}
		}
		replies <- nil
	}()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for tag := range uint16(n) {
		g.must(g.send(wire.Twrite, tag, fid, uint64(0), data))
	}
	g.must(<-replies)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 64<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 8<<20 {
		t.Errorf("%d MiB are still held", held>>20)
	}
}

func TestFlush(t *testing.T) {
	g := serve(t, nil)
	// Of something that is not there, of itself, and in a circle.
	g.must(g.call(wire.Tflush, uint16(999)))
	g.must(g.call(wire.Tflush, uint16(1)))
	for tag := range uint16(400) {
		g.must(g.send(wire.Tflush, 100+tag, 100+(tag^1)))
	}
	for range 400 {
		if _, _, _, err := g.recv(); err != nil {
			t.Fatal(err)
		}
	}
	// The answer to a flush comes after the answer to what it flushes.
	fid, err := g.create(rootFID, "f", wire.OpenBoth, 0o600)
	g.must(err)
	data := make([]byte, wire.MaxPayload)
	for range 50 {
		g.must(g.send(wire.Twrite, 5, fid, uint64(0), data))
		g.must(g.send(wire.Tflush, 6, uint16(5)))
		for _, want := range []uint16{5, 6} {
			_, tag, _, err := g.recv()
			g.must(err)
			if tag != want {
				t.Fatalf("answer to tag %d, want %d", tag, want)
			}
		}
	}
}

// A tag may be used again as soon as its answer has arrived.
func TestTagsAreUsedAgain(t *testing.T) {
	g := serve(t, nil)
	for range 2000 {
		if _, err := g.getattr(rootFID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManySessionsAndRequestsAtOnce(t *testing.T) {
	g := serve(t, nil)
	const n = 500
	done := make(chan error)
	go func() {
		for range n {
			if _, _, _, err := g.recv(); err != nil && err != unix.EEXIST && err != unix.ENOENT && err != unix.EBADF {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range uint16(n) {
		switch i % 5 {
		case 0:
			g.must(g.send(wire.Tmkdir, i, uint32(rootFID), "d", uint32(0o755), uint32(0)))
		case 1:
			g.must(g.send(wire.Twalk, i, uint32(rootFID), uint32(5), uint16(1), "d"))
		case 2:
			g.must(g.send(wire.Trenameat, i, uint32(rootFID), "d", uint32(rootFID), "e"))
		case 3:
			g.must(g.send(wire.Tclunk, i, uint32(5)))
		case 4:
			g.must(g.send(wire.Tunlinkat, i, uint32(rootFID), "e", uint32(wire.AtRemoveDir)))
		}
	}
	g.must(<-done)
}

func TestOptionsAreChecked(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no folder":        {},
		"a file":           {Root: file},
		"nothing there":    {Root: filepath.Join(dir, "none")},
		"no uid":           {Root: dir, UID: wire.NoID},
		"a bad exclude":    {Root: dir, Exclude: []string{"a/b"}},
		"negative limits":  {Root: dir, MaxFIDs: -1},
		"too few handles":  {Root: dir, MaxOpen: 3},
		"the whole system": {Root: "/"},
	} {
		a, b := net.Pipe()
		if err := Serve(t.Context(), a, o); err == nil {
			t.Errorf("%s: served", name)
		}
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: the connection is still open", name)
		}
	}
}

//go:build linux

package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

func (g *guest) lock(fid uint32, typ uint8, start, length uint64, pid uint32) uint8 {
	g.t.Helper()
	d, err := g.rpc(wire.Tlock, fid, typ, uint32(0), start, length, pid, "guest")
	g.must(err)
	return d.U8()
}

func (g *guest) getlock(fid uint32, start, length uint64, pid uint32) (typ uint8, at, n uint64, who uint32) {
	g.t.Helper()
	d, err := g.rpc(wire.Tgetlock, fid, uint8(wire.LockUnlock), start, length, pid, "guest")
	g.must(err)
	return d.U8(), d.U64(), d.U64(), d.U32()
}

func openHost(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func hostLock(f *os.File, kind int16, start, n int64) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: start, Len: n})
}

func TestLocksBetweenProcessesOfTheGuest(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "0123456789")
	a, b := g.mustWalk("f"), g.mustWalk("f")
	g.must(g.open(a, wire.OpenBoth))
	g.must(g.open(b, wire.OpenBoth))
	steps := []struct {
		fid           uint32
		typ           uint8
		start, length uint64
		pid           uint32
		want          uint8
	}{
		{a, wire.LockWrite, 0, 5, 1, wire.LockSuccess},
		{b, wire.LockWrite, 5, 5, 2, wire.LockSuccess},
		{b, wire.LockRead, 4, 1, 2, wire.LockBlocked},
		{a, wire.LockRead, 0, 5, 1, wire.LockSuccess}, // its own may be changed
		{b, wire.LockRead, 4, 1, 2, wire.LockSuccess},
		{b, wire.LockWrite, 0, 0, 2, wire.LockBlocked},
		{a, wire.LockUnlock, 0, 0, 1, wire.LockSuccess},
		{b, wire.LockWrite, 0, 0, 2, wire.LockSuccess},
		{a, wire.LockRead, 100, 1, 1, wire.LockBlocked},
	}
	for i, s := range steps {
		if got := g.lock(s.fid, s.typ, s.start, s.length, s.pid); got != s.want {
			t.Errorf("step %d: %d, want %d", i, got, s.want)
		}
	}
	if typ, start, n, who := g.getlock(a, 3, 1, 1); typ != wire.LockWrite || start != 0 || n != 0 || who != 2 {
		t.Errorf("getlock: type %d, %d+%d, pid %d", typ, start, n, who)
	}
	g.must(g.clunk(b)) // closing lets go
	if got := g.lock(a, wire.LockWrite, 0, 0, 1); got != wire.LockSuccess {
		t.Errorf("after the other closed: %d", got)
	}
	if typ, _, _, _ := g.getlock(a, 0, 0, 1); typ != wire.LockUnlock {
		t.Errorf("its own lock is in its way: %d", typ)
	}
}

func TestLocksAgainstTheHost(t *testing.T) {
	g := serve(t, nil)
	host := openHost(t, g.put("f", "0123456789"))
	fid := g.mustWalk("f")
	g.must(g.open(fid, wire.OpenBoth))

	// The guest holds; the host is kept out, of that range only.
	if got := g.lock(fid, wire.LockWrite, 0, 5, 1); got != wire.LockSuccess {
		t.Fatalf("lock: %d", got)
	}
	g.want("host write lock", hostLock(host, unix.F_WRLCK, 0, 1), unix.EAGAIN)
	g.must(hostLock(host, unix.F_WRLCK, 5, 5))
	// The host holds; the guest is kept out.
	if got := g.lock(fid, wire.LockRead, 5, 1, 1); got != wire.LockBlocked {
		t.Errorf("lock of what the host has: %d", got)
	}
	if typ, start, n, _ := g.getlock(fid, 5, 1, 1); typ != wire.LockWrite || start != 5 || n != 5 {
		t.Errorf("getlock of what the host has: type %d, %d+%d", typ, start, n)
	}
	g.must(hostLock(host, unix.F_UNLCK, 0, 0))
	if got := g.lock(fid, wire.LockUnlock, 1, 2, 1); got != wire.LockSuccess {
		t.Errorf("unlock: %d", got)
	}
	g.must(hostLock(host, unix.F_WRLCK, 1, 2))
	g.want("what is still held", hostLock(host, unix.F_WRLCK, 0, 1), unix.EAGAIN)
	g.want("what is still held", hostLock(host, unix.F_WRLCK, 3, 1), unix.EAGAIN)
	g.must(g.clunk(fid))
	g.must(hostLock(host, unix.F_WRLCK, 0, 0))
}

func TestFlockAgainstTheHost(t *testing.T) {
	g := serve(t, nil)
	host := openHost(t, g.put("f", "x"))
	fid := g.mustWalk("f")
	g.must(g.open(fid, wire.OpenRead)) // flock needs no right to write
	flock := func(how int) error { return unix.Flock(int(host.Fd()), how|unix.LOCK_NB) }
	g.must(flock(unix.LOCK_EX))
	if got := g.lock(fid, wire.LockWrite, 0, 0, 1); got != wire.LockBlocked {
		t.Errorf("the host has it: %d", got)
	}
	g.must(flock(unix.LOCK_UN))
	if got := g.lock(fid, wire.LockWrite, 0, 0, 1); got != wire.LockSuccess {
		t.Errorf("lock: %d", got)
	}
	g.want("flock of what the guest has", flock(unix.LOCK_SH), unix.EWOULDBLOCK)
	if got := g.lock(fid, wire.LockRead, 0, 0, 1); got != wire.LockSuccess {
		t.Errorf("to a shared lock: %d", got)
	}
	g.must(flock(unix.LOCK_SH))
	g.must(flock(unix.LOCK_UN))
	if got := g.lock(fid, wire.LockUnlock, 0, 0, 1); got != wire.LockSuccess {
		t.Errorf("unlock: %d", got)
	}
	g.must(flock(unix.LOCK_EX))
}

func TestLockLimits(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "x")
	fid := g.mustWalk("f")
	if err := g.call(wire.Tlock, fid, uint8(0), uint32(0), uint64(0), uint64(0), uint32(1), "g"); err != unix.EBADF {
		t.Errorf("lock of what is not open: %v", err)
	}
	g.must(g.open(fid, wire.OpenBoth))
	last := uint8(0)
	for i := range uint64(maxLocks + 10) {
		last = g.lock(fid, wire.LockWrite, i*2, 1, 1)
	}
	if last != wire.LockError {
		t.Errorf("beyond the limit: %d", last)
	}
	if got := g.lock(fid, wire.LockUnlock, 0, 0, 1); got != wire.LockSuccess {
		t.Errorf("unlock of all: %d", got)
	}
	host := openHost(t, filepath.Join(g.dir, "f"))
	g.must(hostLock(host, unix.F_WRLCK, 0, 0))
	g.want("a type that is none", g.call(wire.Tlock, fid, uint8(9), uint32(0), uint64(0), uint64(0), uint32(1), "g"), unix.EINVAL)
	g.want("a range beyond all", g.call(wire.Tlock, fid, uint8(0), uint32(0), uint64(1<<63), uint64(1), uint32(1), "g"), unix.EINVAL)
	g.want("a range that wraps", g.call(wire.Tlock, fid, uint8(0), uint32(0), uint64(1<<62), uint64(1<<63), uint32(1), "g"), unix.EINVAL)
}

// A lock that is asked for while its handle is clunked must not outlive it.
func TestLockAfterClunk(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "x")
	root, err := beneath.Open(g.dir, 10, beneath.NewBudget(10))
	g.must(err)
	dir := root.Dir()
	defer root.Close()
	defer dir.Release()
	n, err := dir.Lookup("f")
	g.must(err)
	f := newFID(n)
	defer f.release()
	table := lockTable{files: map[fileKey]*fileLocks{}}
	l, _ := newLock(f, wire.LockWrite, 0, 0, "g", 1)
	if blocked, err := table.set(n, l, false); blocked || err != nil {
		t.Fatalf("control: %v, %v", blocked, err)
	}
	table.forget(f)
	if _, err := table.set(n, l, false); err != unix.EBADF {
		t.Errorf("lock through a handle that is gone: %v", err)
	}
	if len(table.files) != 0 || table.count != 0 || root.InUse() != 2 {
		t.Errorf("%d files, %d locks, %d descriptors are left", len(table.files), table.count, root.InUse())
	}
}

// A guest that may not write must not be able to stop the host's writers.
func TestReadOnlyLocksStayInTheGuest(t *testing.T) {
	g := serve(t, func(o *Options) { o.ReadOnly = true })
	host := openHost(t, g.put("f", "x"))
	fid := g.mustWalk("f")
	g.must(g.open(fid, wire.OpenRead))
	if got := g.lock(fid, wire.LockWrite, 0, 0, 1); got != wire.LockSuccess {
		t.Errorf("lock: %d", got)
	}
	g.must(unix.Flock(int(host.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	g.must(hostLock(host, unix.F_WRLCK, 0, 0))
}

//go:build linux

package files

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

func TestReadAndWrite(t *testing.T) {
	g := serve(t, nil)
	data := make([]byte, 3<<20)
	rand.New(rand.NewSource(1)).Read(data)
	fid, err := g.create(rootFID, "f", wire.OpenBoth, 0o640)
	g.must(err)
	for off := 0; off < len(data); off += wire.MaxPayload {
		g.must(g.write(fid, uint64(off), data[off:min(off+wire.MaxPayload, len(data))]))
	}
	if got := sha256.Sum256([]byte(g.onHost("f"))); got != sha256.Sum256(data) {
		t.Error("the host has other bytes than were written")
	}
	var back []byte
	for {
		p, err := g.read(fid, uint64(len(back)), wire.MaxPayload)
		g.must(err)
		if len(p) == 0 {
			break
		}
		back = append(back, p...)
	}
	if !bytes.Equal(back, data) {
		t.Error("other bytes came back than were written")
	}
	g.must(g.call(wire.Tfsync, fid, uint32(0)))
	g.must(g.call(wire.Tfsync, fid, uint32(1)))
	g.must(g.clunk(fid))
}

func TestReadLargerThanAMessage(t *testing.T) {
	g := serve(t, nil)
	g.put("f", strings.Repeat("x", 1<<20))
	fid := g.mustWalk("f")
	g.must(g.open(fid, wire.OpenRead))
	p, err := g.read(fid, 0, 0xffffffff)
	g.must(err)
	if len(p) != wire.MaxPayload {
		t.Errorf("read %d bytes, want %d", len(p), wire.MaxPayload)
	}
}

func TestOwnership(t *testing.T) {
	g := serve(t, nil)
	fid, err := g.create(rootFID, "f", wire.OpenWrite, 0o600)
	g.must(err)
	a, err := g.getattr(fid)
	g.must(err)
	if a.uid != guestUID || a.gid != guestGID {
		t.Errorf("in the guest it belongs to %d:%d", a.uid, a.gid)
	}
	g.must(g.mkdir(rootFID, "d"))
	g.must(g.symlink(rootFID, "l", "f"))
	for _, name := range []string{"f", "d", "l"} {
		var st unix.Stat_t
		g.must(unix.Lstat(filepath.Join(g.dir, name), &st))
		if st.Uid != uint32(os.Geteuid()) {
			t.Errorf("on the host %s belongs to %d", name, st.Uid)
		}
	}
	// A chown that changes nothing passes, any other does not.
	g.must(g.setattr(fid, wire.SetUID|wire.SetGID, 0, guestUID, guestGID, 0, [2]uint64{}))
	g.want("chown to root", g.setattr(fid, wire.SetUID, 0, 0, 0, 0, [2]uint64{}), unix.EPERM)
	g.want("chgrp to root", g.setattr(fid, wire.SetGID, 0, 0, 0, 0, [2]uint64{}), unix.EPERM)
}

func TestModes(t *testing.T) {
	g := serve(t, nil)
	p := g.put("f", "x")
	fid := g.mustWalk("f")
	g.must(g.chmod(fid, 0o755))
	if st, err := os.Stat(p); err != nil || st.Mode() != 0o755 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	g.must(g.chmod(fid, 0o6755)) // what a guest's root may do is not done on the host
	if st, _ := os.Stat(p); st.Mode() != 0o755 {
		t.Errorf("after chmod 6755 the mode is %v", st.Mode())
	}
	made, err := g.create(rootFID, "suid", wire.OpenWrite, 0o6711)
	g.must(err)
	g.must(g.clunk(made))
	if st, _ := os.Stat(filepath.Join(g.dir, "suid")); st.Mode() != 0o711 {
		t.Errorf("created with mode 6711 it has %v", st.Mode())
	}
	g.must(g.call(wire.Tmkdir, uint32(rootFID), "d", uint32(0o6755), uint32(0)))
	if st, _ := os.Stat(filepath.Join(g.dir, "d")); st.Mode() != os.ModeDir|0o755 {
		t.Errorf("mkdir with mode 6755 gave %v", st.Mode())
	}
}

// A setuid program of the host must not get other content and stay setuid.
func TestWritingClearsSetID(t *testing.T) {
	g := serve(t, nil)
	p := g.put("prog", "x")
	g.must(os.Chmod(p, 0o755|os.ModeSetuid|os.ModeSetgid))
	if st, _ := os.Stat(p); st.Mode()&os.ModeSetuid == 0 {
		t.Fatal("the control has no setuid bit")
	}
	fid := g.mustWalk("prog")
	a, err := g.getattr(fid)
	g.must(err)
	if a.mode&0o6000 != 0 {
		t.Errorf("the guest sees mode %o", a.mode)
	}
	g.must(g.open(fid, wire.OpenWrite))
	g.must(g.write(fid, 0, []byte("evil")))
	if st, _ := os.Stat(p); st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("after a write the mode is %v", st.Mode())
	}
}

func TestTimesAndSize(t *testing.T) {
	g := serve(t, nil)
	p := g.put("f", "hello")
	fid := g.mustWalk("f")
	g.must(g.setattr(fid, wire.SetMtime|wire.SetMtimeVal, 0, 0, 0, 0, [2]uint64{1000000000, 123456789}))
	if st, _ := os.Stat(p); st.ModTime().UnixNano() != 1000000000123456789 {
		t.Errorf("mtime %v", st.ModTime())
	}
	a, err := g.getattr(fid)
	g.must(err)
	if a.mtime != [2]uint64{1000000000, 123456789} {
		t.Errorf("the guest sees mtime %v", a.mtime)
	}
	g.want("nanoseconds that are none", g.setattr(fid, wire.SetMtime|wire.SetMtimeVal, 0, 0, 0, 0, [2]uint64{1, 1 << 31}), unix.EINVAL)
	g.must(g.truncate(fid, 2))
	if g.onHost("f") != "he" {
		t.Errorf("after truncation: %q", g.onHost("f"))
	}
	g.want("a size beyond all", g.truncate(fid, 1<<63), unix.EFBIG)
	g.must(g.symlink(rootFID, "l", "nowhere"))
	g.must(g.setattr(g.mustWalk("l"), wire.SetMtime|wire.SetMtimeVal, 0, 0, 0, 0, [2]uint64{77, 0}))
	if st, _ := os.Lstat(filepath.Join(g.dir, "l")); st.ModTime().Unix() != 77 {
		t.Errorf("the link's own mtime is %v", st.ModTime())
	}
}

func TestSparseFile(t *testing.T) {
	g := serve(t, nil)
	fid, err := g.create(rootFID, "big", wire.OpenBoth, 0o600)
	g.must(err)
	g.must(g.truncate(fid, 1<<40))
	g.must(g.write(fid, 1<<40-4, []byte("tail")))
	p, err := g.read(fid, 1<<40-8, 100)
	g.must(err)
	if string(p) != "\x00\x00\x00\x00tail" {
		t.Errorf("read %q", p)
	}
	a, err := g.getattr(fid)
	g.must(err)
	if a.size != 1<<40 {
		t.Errorf("size %d", a.size)
	}
	g.want("an offset beyond all", g.write(fid, 1<<63, []byte("x")), unix.EINVAL)
}

func TestUnlinkedFileGoesOn(t *testing.T) {
	g := serve(t, nil)
	fid, err := g.create(rootFID, "tmp", wire.OpenBoth|wire.OpenExcl, 0o444)
	g.must(err)
	g.must(g.unlink(rootFID, "tmp", 0))
	g.missing("tmp")
	g.must(g.write(fid, 0, []byte("still here")))
	g.must(g.truncate(fid, 5))
	g.must(g.chmod(fid, 0o600))
	p, err := g.read(fid, 0, 100)
	g.must(err)
	if string(p) != "still" {
		t.Errorf("read %q", p)
	}
	if a, err := g.getattr(fid); err != nil || a.nlink != 0 || a.size != 5 {
		t.Errorf("getattr %+v, %v", a, err)
	}
}

func TestRenameKeepsHandles(t *testing.T) {
	g := serve(t, nil)
	g.put("a/b/f", "x")
	dir, file := g.mustWalk("a", "b"), g.mustWalk("a", "b", "f")
	g.must(g.open(file, wire.OpenBoth))
	g.must(g.mkdir(rootFID, "z"))
	g.must(g.rename(rootFID, "a", g.mustWalk("z"), "new"))
	g.must(g.write(file, 0, []byte("y")))
	made, err := g.create(dir, "g", wire.OpenWrite, 0o600)
	g.must(err)
	g.must(g.clunk(made))
	if g.onHost("z/new/b/f") != "y" || g.onHost("z/new/b/g") != "" {
		t.Error("the handles did not follow the folder")
	}
	g.want("a name that is gone", g.rename(rootFID, "a", rootFID, "c"), unix.ENOENT)
	// Over an existing file, and the file is still itself.
	g.put("old", "old")
	g.must(g.rename(dir, "f", rootFID, "old"))
	if g.onHost("old") != "y" {
		t.Errorf("after the rename: %q", g.onHost("old"))
	}
	g.must(g.write(file, 0, []byte("z")))
	if g.onHost("old") != "z" {
		t.Errorf("the open handle wrote elsewhere")
	}
}

func TestLinks(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "x")
	for name, target := range map[string]string{"rel": "f", "dangling": "no/such", "abs": "/etc/passwd", "up": "../../../etc", "odd": "a\nb\xff"} {
		g.must(g.symlink(rootFID, name, target))
		if got, err := os.Readlink(filepath.Join(g.dir, name)); err != nil || got != target {
			t.Errorf("on the host %s is %q, %v", name, got, err)
		}
		d, err := g.rpc(wire.Treadlink, g.mustWalk(name))
		g.must(err)
		if got := d.String(); got != target {
			t.Errorf("in the guest %s is %q", name, got)
		}
	}
	g.want("an empty target", g.symlink(rootFID, "e", ""), unix.ENOENT)
	g.want("a target with NUL", g.symlink(rootFID, "e", "a\x00b"), unix.EINVAL)
	g.want("a long target", g.symlink(rootFID, "e", strings.Repeat("x", 5000)), unix.ENAMETOOLONG)
	g.must(g.link(rootFID, g.mustWalk("f"), "f2"))
	g.must(g.link(rootFID, g.mustWalk("abs"), "abs2")) // the link itself, not what it says
	if got, _ := os.Readlink(filepath.Join(g.dir, "abs2")); got != "/etc/passwd" {
		t.Errorf("abs2 is %q", got)
	}
	a, err := g.getattr(g.mustWalk("f2"))
	g.must(err)
	b, err := g.getattr(g.mustWalk("f"))
	g.must(err)
	if a.nlink != 2 || a.qid != b.qid {
		t.Errorf("hard links: %+v and %+v", a, b)
	}
	g.must(g.mkdir(rootFID, "d"))
	g.want("a link to a directory", g.link(rootFID, g.mustWalk("d"), "d2"), unix.EPERM)
}

func TestDirectories(t *testing.T) {
	g := serve(t, nil)
	var want []string
	for i := range 3000 {
		want = append(want, fmt.Sprintf("file-%04d-%s", i, strings.Repeat("n", i%200)))
		g.put("d/"+want[i], "")
	}
	for _, count := range []uint32{512, 4000, wire.MaxPayload} {
		got := g.list(count, "d")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("with %d bytes an answer: %d names, want %d", count, len(got), len(want))
		}
	}
	g.want("rmdir of a full one", g.unlink(rootFID, "d", wire.AtRemoveDir), unix.ENOTEMPTY)
	g.must(g.mkdir(rootFID, "e"))
	g.want("unlink of a directory", g.unlink(rootFID, "e", 0), unix.EISDIR)
	g.want("unlink with other flags", g.unlink(rootFID, "e", 1), unix.EINVAL)
	g.must(g.unlink(rootFID, "e", wire.AtRemoveDir))
	g.want("mkdir of what exists", g.mkdir(rootFID, "d"), unix.EEXIST)
}

func TestHostileNamesPassUnharmed(t *testing.T) {
	g := serve(t, nil)
	for _, name := range []string{"new\nline", "\xff\xfe not utf-8", "\x1b[31mred", "-rf", " ", "...", strings.Repeat("n", 255), "a:b", `back\slash`} {
		fid, err := g.create(rootFID, name, wire.OpenWrite, 0o600)
		if err != nil {
			t.Errorf("create %q: %v", name, err)
			continue
		}
		g.must(g.write(fid, 0, []byte(name)))
		if g.onHost(name) != name || !slices.Contains(g.list(4096), name) {
			t.Errorf("%q did not arrive as it is", name)
		}
		g.must(g.unlink(rootFID, name, 0))
	}
}

func TestExclusiveCreate(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "content")
	_, err := g.create(rootFID, "f", wire.OpenWrite|wire.OpenExcl, 0o600)
	g.want("exclusive create of what exists", err, unix.EEXIST)
	fid, err := g.create(rootFID, "f", wire.OpenWrite, 0o600) // the host made it meanwhile
	g.must(err)
	g.must(g.clunk(fid))
	if g.onHost("f") != "content" {
		t.Error("create without truncation lost the content")
	}
	fid, err = g.create(rootFID, "f", wire.OpenWrite|wire.OpenTrunc, 0o600)
	g.must(err)
	g.must(g.clunk(fid))
	if g.onHost("f") != "" {
		t.Error("create with truncation kept the content")
	}
}

func TestHandlesAreWhatTheyWereOpenedFor(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "x")
	ro, wo := g.mustWalk("f"), g.mustWalk("f")
	_, err := g.read(ro, 0, 1)
	g.want("read before open", err, unix.EBADF)
	g.must(g.open(ro, wire.OpenRead))
	g.must(g.open(wo, wire.OpenWrite))
	g.want("write to a reader", g.write(ro, 0, []byte("y")), unix.EBADF)
	_, err = g.read(wo, 0, 1)
	g.want("read from a writer", err, unix.EBADF)
	g.want("open twice", g.open(ro, wire.OpenRead), unix.EBUSY)
	g.want("open with both access bits", g.open(g.mustWalk("f"), 3), unix.EINVAL)
	g.want("open a file as a directory", g.open(g.mustWalk("f"), wire.OpenDir), unix.ENOTDIR)
	g.want("write to a directory", g.open(g.mustWalk(), wire.OpenWrite), unix.EISDIR)
	g.want("clunk of nothing", g.clunk(4711), unix.EBADF)
}

func TestPartialWalk(t *testing.T) {
	g := serve(t, nil)
	g.put("a/b/f", "x")
	d, err := g.rpc(wire.Twalk, uint32(rootFID), uint32(900), uint16(3), "a", "b", "none")
	g.must(err)
	if n := d.U16(); n != 2 {
		t.Errorf("found %d names, want 2", n)
	}
	_, err = g.getattr(900)
	g.want("the handle of a walk that ended early", err, unix.EBADF)
	_, err = g.walk(rootFID, "none", "b")
	g.want("a walk that fails at once", err, unix.ENOENT)
}

func TestUnsupported(t *testing.T) {
	g := serve(t, nil)
	g.put("f", "x")
	fid := g.mustWalk("f")
	g.want("xattrwalk", g.call(wire.Txattrwalk, fid, uint32(99), "user.x"), unix.EOPNOTSUPP)
	g.want("xattrcreate", g.call(wire.Txattrcreate, fid, "user.x", uint64(1), uint32(0)), unix.EOPNOTSUPP)
	g.want("rename", g.call(wire.Trename, fid, uint32(rootFID), "g"), unix.EOPNOTSUPP)
	g.want("auth", g.call(wire.Tauth, uint32(9), "root", "", uint32(0)), unix.EOPNOTSUPP)
	g.want("a type that is none", g.call(wire.Type(250)), unix.EOPNOTSUPP)
	g.want("a reply as a request", g.call(wire.Tread+1, []byte("x")), unix.EOPNOTSUPP)
	g.want("remove", g.call(wire.Tremove, fid), unix.EOPNOTSUPP)
	_, err := g.getattr(fid)
	g.want("the handle after remove", err, unix.EBADF)
	if g.onHost("f") != "x" {
		t.Error("the file is gone")
	}
}

func TestStatFS(t *testing.T) {
	g := serve(t, nil)
	d, err := g.rpc(wire.Tstatfs, uint32(rootFID))
	g.must(err)
	if typ, bsize, blocks := d.U32(), d.U32(), d.U64(); typ != nineMagic || bsize == 0 || blocks == 0 {
		t.Errorf("type %x, block size %d, %d blocks", typ, bsize, blocks)
	}
}

//go:build linux

package files

import (
	"os"
	"slices"
	"testing"

	"github.com/hugelgupf/p9/p9"
	"golang.org/x/sys/unix"
)

// A client of another author understands what we answer, field by field.
// (Not its Lock, which leaves the handle out of its request.)
func TestForeignClient(t *testing.T) {
	dir := t.TempDir()
	g := dial(t, t.Context(), dir, nil)
	c, err := p9.NewClient(g.conn)
	g.must(err)
	root, err := c.Attach("/")
	g.must(err)
	defer root.Close()

	_, d, err := root.Walk(nil)
	g.must(err)
	_, _, _, err = d.Create("f", p9.ReadWrite, 0o640, p9.NoUID, p9.NoGID)
	g.must(err)
	if n, err := d.WriteAt([]byte("hello"), 0); n != 5 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	buf := make([]byte, 10)
	if n, _ := d.ReadAt(buf, 1); string(buf[:n]) != "ello" {
		t.Errorf("read %q", buf[:n])
	}
	g.must(d.FSync())
	_, valid, a, err := d.GetAttr(p9.AttrMaskAll)
	g.must(err)
	if !valid.Mode || a.Mode&0o7777 != 0o640 || a.UID != guestUID || a.GID != guestGID || a.Size != 5 || a.NLink != 1 {
		t.Errorf("attributes %+v", a)
	}
	var st unix.Stat_t
	g.must(unix.Stat(dir+"/f", &st))
	if a.MTimeSeconds != uint64(st.Mtim.Sec) || a.MTimeNanoSeconds != uint64(st.Mtim.Nsec) || a.CTimeNanoSeconds != uint64(st.Ctim.Nsec) {
		t.Errorf("times %+v", a)
	}
	g.must(d.SetAttr(p9.SetAttrMask{Permissions: true, Size: true}, p9.SetAttr{Permissions: 0o755, Size: 2}))
	if fi, err := os.Stat(dir + "/f"); err != nil || fi.Mode() != 0o755 || fi.Size() != 2 {
		t.Errorf("%v, %v", fi, err)
	}
	g.must(d.Close())
	foreignTree(t, g, root)
}

func foreignTree(t *testing.T, g *guest, root p9.File) {
	_, err := root.Mkdir("d", 0o755, p9.NoUID, p9.NoGID)
	g.must(err)
	_, err = root.Symlink("target", "l", p9.NoUID, p9.NoGID)
	g.must(err)
	_, dir, err := root.Walk([]string{"d"})
	g.must(err)
	_, f, err := root.Walk([]string{"f"})
	g.must(err)
	g.must(dir.Link(f, "f2"))
	g.must(root.RenameAt("f", dir, "f3"))
	_, l, err := root.Walk([]string{"l"})
	g.must(err)
	if s, err := l.Readlink(); s != "target" || err != nil {
		t.Errorf("readlink %q, %v", s, err)
	}
	_, _, err = dir.Open(p9.ReadOnly)
	g.must(err)
	entries, err := dir.Readdir(0, 8192)
	g.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{".", "..", "f2", "f3"}) {
		t.Errorf("entries %q", names)
	}
	fs, err := root.StatFS()
	g.must(err)
	if fs.NameLength != 255 || fs.BlockSize == 0 {
		t.Errorf("statfs %+v", fs)
	}
	_, dir2, err := root.Walk([]string{"d"})
	g.must(err)
	g.must(dir2.UnlinkAt("f2", 0))
	if _, _, err := root.Walk([]string{"none"}); err != unix.ENOENT && err == nil {
		t.Error("walked to what is not there")
	}
	for _, f := range []p9.File{dir, dir2, f, l} {
		g.must(f.Close())
	}
}

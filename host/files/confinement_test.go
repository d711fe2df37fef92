//go:build linux

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/berthos/berth/host/files/wire"
	"github.com/berthos/berth/tools/testenv"
	"golang.org/x/sys/unix"
)

// outside makes a folder beside the shared one, with a secret in it.
func outside(g *guest) string {
	g.t.Helper()
	out := filepath.Join(filepath.Dir(g.dir), "outside")
	g.must(os.MkdirAll(out, 0o755))
	g.must(os.WriteFile(filepath.Join(out, "secret"), []byte("secret"), 0o644))
	return out
}

// untouched fails if anything outside is not as outside made it.
func untouched(g *guest, out string) {
	g.t.Helper()
	list, err := os.ReadDir(out)
	g.must(err)
	if len(list) != 1 || list[0].Name() != "secret" {
		g.t.Errorf("outside there is now %v", list)
	}
	var st unix.Stat_t
	g.must(unix.Stat(filepath.Join(out, "secret"), &st))
	if b, _ := os.ReadFile(filepath.Join(out, "secret")); string(b) != "secret" || st.Mode&0o7777 != 0o644 || st.Nlink != 1 {
		g.t.Errorf("the secret is now %q, mode %o, %d links", b, st.Mode, st.Nlink)
	}
}

var escapes = []string{"..", ".", "../outside", "a/../../outside", "/etc", "/", "a/b", "outside\x00", "\x00"}

func TestNamesThatAreNoNames(t *testing.T) {
	g := serve(t, nil)
	out := outside(g)
	g.put("a/f", "x")
	f := g.mustWalk("a", "f")
	for _, name := range escapes {
		_, err := g.walk(rootFID, name)
		g.want("walk "+name, err, unix.EINVAL)
		_, err = g.walk(rootFID, "a", name) // the second step must fail too
		if err == nil {
			t.Errorf("walk a, %q succeeded", name)
		}
		_, err = g.create(rootFID, name, wire.OpenWrite, 0o600)
		g.want("create "+name, err, unix.EINVAL)
		g.want("mkdir "+name, g.mkdir(rootFID, name), unix.EINVAL)
		g.want("mknod "+name, g.call(wire.Tmknod, uint32(rootFID), name, uint32(unix.S_IFREG|0o600), uint32(0), uint32(0), uint32(0)), unix.EINVAL)
		g.want("symlink "+name, g.symlink(rootFID, name, "x"), unix.EINVAL)
		g.want("link "+name, g.link(rootFID, f, name), unix.EINVAL)
		g.want("rename to "+name, g.rename(rootFID, "a", rootFID, name), unix.EINVAL)
		g.want("rename from "+name, g.rename(rootFID, name, rootFID, "b"), unix.EINVAL)
		g.want("unlink "+name, g.unlink(rootFID, name, 0), unix.EINVAL)
		g.want("rmdir "+name, g.unlink(rootFID, name, wire.AtRemoveDir), unix.EINVAL)
	}
	_, err := g.walk(rootFID, "")
	g.want("walk to an empty name", err, unix.ENOENT)
	_, err = g.walk(rootFID, strings.Repeat("n", 256))
	g.want("walk to a long name", err, unix.ENAMETOOLONG)
	untouched(g, out)
	// Control: the same requests with a plain name do what they say.
	g.must(g.mkdir(rootFID, "plain"))
	g.must(g.rename(rootFID, "plain", rootFID, "plain2"))
	g.must(g.unlink(rootFID, "plain2", wire.AtRemoveDir))
}

func TestAttachNamesNothingElse(t *testing.T) {
	g := serve(t, nil)
	for _, tree := range []string{"/etc", "..", "a", "//"} {
		g.want("attach "+tree, g.call(wire.Tattach, uint32(50), uint32(wire.NoFID), "root", tree, uint32(0)), unix.ENOENT)
	}
	g.must(g.call(wire.Tattach, uint32(50), uint32(wire.NoFID), "root", "/", uint32(0)))
}

// The server never follows a link, wherever it points and whoever made it.
func TestLinksAreNotFollowed(t *testing.T) {
	g := serve(t, nil)
	out := outside(g)
	g.put("inside/f", "x")
	for name, target := range map[string]string{"out": out, "secret": out + "/secret", "up": "../outside", "in": "inside", "proc": "/proc/self/root"} {
		g.must(g.symlink(rootFID, name, target))
	}
	for _, name := range []string{"out", "up", "in", "proc"} {
		_, err := g.walk(rootFID, name, "secret")
		if err == nil {
			t.Errorf("walked through the link %s", name)
		}
		fid := g.mustWalk(name)
		_, err = g.walk(fid, "secret")
		g.want("walk from the link "+name, err, unix.ENOTDIR)
		_, err = g.create(fid, "new", wire.OpenWrite, 0o600)
		g.want("create in the link "+name, err, unix.ENOTDIR)
		g.want("mkdir in the link "+name, g.mkdir(fid, "new"), unix.ENOTDIR)
		g.want("rename into the link "+name, g.rename(rootFID, "inside", fid, "new"), unix.ENOTDIR)
		g.want("unlink in the link "+name, g.unlink(fid, "secret", 0), unix.ENOTDIR)
	}
	fid := g.mustWalk("secret")
	g.want("open a link", g.open(fid, wire.OpenRead), unix.ELOOP)
	g.want("truncate a link", g.truncate(fid, 0), unix.ELOOP)
	g.want("chmod a link", g.chmod(fid, 0o777), unix.EOPNOTSUPP)
	_, err := g.create(rootFID, "secret", wire.OpenWrite|wire.OpenTrunc, 0o600)
	g.want("create over a link", err, unix.ELOOP)
	// A hard link to a link is a link, not what it points to.
	g.must(g.link(rootFID, fid, "secret2"))
	if target, err := os.Readlink(filepath.Join(g.dir, "secret2")); err != nil || target != out+"/secret" {
		t.Errorf("the hard link is %q, %v", target, err)
	}
	untouched(g, out)
}

func TestSpecialFiles(t *testing.T) {
	g := serve(t, nil)
	mknod := func(name string, mode uint32) error {
		return g.call(wire.Tmknod, uint32(rootFID), name, mode, uint32(1), uint32(3), uint32(0))
	}
	g.want("a character device", mknod("c", unix.S_IFCHR|0o666), unix.EPERM)
	g.want("a block device", mknod("b", unix.S_IFBLK|0o666), unix.EPERM)
	g.want("a fifo", mknod("p", unix.S_IFIFO|0o666), unix.EPERM)
	for _, name := range []string{"c", "b", "p"} {
		g.missing(name)
	}
	g.must(mknod("s", unix.S_IFSOCK|0o644))
	g.must(mknod("f", unix.S_IFREG|0o644))
	g.want("open a socket", g.open(g.mustWalk("s"), wire.OpenRead), unix.EPERM)

	// What the host has is shown and not opened: a fifo would stop us.
	g.must(unix.Mkfifo(filepath.Join(g.dir, "hostfifo"), 0o600))
	g.want("open a fifo of the host", g.open(g.mustWalk("hostfifo"), wire.OpenRead), unix.EPERM)
	if os.Geteuid() == 0 {
		g.must(unix.Mknod(filepath.Join(g.dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		g.want("open a device of the host", g.open(g.mustWalk("null"), wire.OpenBoth), unix.EPERM)
	}
}

// A folder that the host moved away is no longer shared, also for who holds it.
func TestMovedAway(t *testing.T) {
	g := serve(t, nil)
	out := outside(g)
	g.put("keys/key", "old")
	dir, file, open := g.mustWalk("keys"), g.mustWalk("keys", "key"), g.mustWalk("keys", "key")
	g.must(g.open(open, wire.OpenRead))
	moved := filepath.Join(filepath.Dir(g.dir), "moved")
	g.must(os.Rename(filepath.Join(g.dir, "keys"), moved))
	g.must(os.WriteFile(filepath.Join(moved, "later"), []byte("secret"), 0o600))

	_, err := g.walk(dir, "later")
	g.want("walk", err, unix.ESTALE)
	g.want("open of the folder", g.open(dir, wire.OpenRead), unix.ESTALE)
	g.want("open of a file", g.open(file, wire.OpenBoth), unix.ESTALE)
	_, err = g.create(dir, "new", wire.OpenWrite, 0o600)
	g.want("create", err, unix.ESTALE)
	g.want("mkdir", g.mkdir(dir, "new"), unix.ESTALE)
	g.want("unlink", g.unlink(dir, "later", 0), unix.ESTALE)
	g.want("rename", g.rename(dir, "later", rootFID, "back"), unix.ESTALE)
	g.want("link", g.link(rootFID, file, "key2"), unix.ESTALE)
	g.want("chmod", g.chmod(file, 0o777), unix.ESTALE)
	if list, _ := os.ReadDir(moved); len(list) != 2 {
		t.Errorf("the moved folder holds %v", list)
	}
	untouched(g, out)
	// Control: back in the folder, the same handles work again.
	g.must(os.Rename(moved, filepath.Join(g.dir, "keys2")))
	if _, err := g.walk(dir, "later"); err != nil {
		t.Errorf("after it came back: %v", err)
	}
}

func TestMountsBelowAreNotEntered(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Skip(t, "only root may mount")
	}
	g := serve(t, nil)
	mnt := filepath.Join(g.dir, "mnt")
	g.must(os.Mkdir(mnt, 0o755))
	if _, err := g.walk(rootFID, "mnt"); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := unix.Mount("proc", mnt, "proc", 0, ""); err != nil {
		testenv.Skip(t, fmt.Sprintf("cannot mount here: %v", err))
	}
	defer unix.Unmount(mnt, unix.MNT_DETACH)
	_, err := g.walk(rootFID, "mnt")
	g.want("walk into a mount", err, unix.EXDEV)
}

// A thread of the host swaps a directory and a link to the outside as fast as
// it can, while the guest works on the name and on handles below it.
func TestSwapRace(t *testing.T) {
	g := serve(t, nil)
	out := outside(g)
	g.put("d/secret", "inside")
	g.must(os.Symlink(out, filepath.Join(g.dir, "l")))
	a, b := filepath.Join(g.dir, "d"), filepath.Join(g.dir, "l")

	var swapper sync.WaitGroup
	stop := make(chan struct{})
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("swap: %v", err)
				return
			}
		}
	})
	inside := 0
	for range 2000 {
		dir, err := g.walk(rootFID, "d")
		if err != nil {
			continue
		}
		if fid, err := g.walk(dir, "secret"); err == nil {
			if g.open(fid, wire.OpenRead) == nil {
				p, err := g.read(fid, 0, 100)
				if err != nil || string(p) != "inside" {
					t.Fatalf("read %q, %v", p, err)
				}
				inside++
			}
			g.clunk(fid)
		}
		if fid, err := g.create(dir, "new", wire.OpenWrite, 0o600); err == nil {
			g.clunk(fid)
			g.unlink(dir, "new", 0)
		}
		g.link(dir, rootFID, "x")
		g.rename(dir, "nothing", dir, "nothing2")
		g.clunk(dir)
		runtime.Gosched()
	}
	close(stop)
	swapper.Wait()
	untouched(g, out)
	if inside == 0 {
		t.Error("control: the guest never read the file that is inside")
	}
}

func TestReplacedRootIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(dir), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	g := dial(t, t.Context(), link, nil)
	err := <-g.done
	g.done <- err
	if err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("serving a link: %v", err)
	}
	if errors.Is(err, unix.ENOENT) {
		t.Errorf("the error hides what is wrong: %v", err)
	}
}

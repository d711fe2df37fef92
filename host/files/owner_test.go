//go:build linux

package files

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/host/files/wire"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/tools/testenv"
	"golang.org/x/sys/unix"
)

const (
	otherUID = 65534
	otherGID = 65534
)

// TestAsOrdinaryUser runs the tests of this package again without root's rights.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is that run, or all of it is
	}
	dir, err := os.MkdirTemp("", "files-user")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	prog := filepath.Join(dir, "files.test")
	if err := os.WriteFile(prog, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, otherUID, otherGID); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(prog, "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUID, Gid: otherGID}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as uid %d: %v\n%s", otherUID, err, out)
	}
	if n := bytes.Count(out, []byte("--- PASS")); n < 30 {
		t.Errorf("only %d tests ran", n)
	}
}

// foreign makes a folder that belongs to an ordinary user, for root to share.
func foreign(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		testenv.Skip(t, "only root may share another user's folder")
	}
	dir := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, otherUID, otherGID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Root serves another user's folder with that user's rights, judged by the kernel.
func TestRootServesAsTheOwner(t *testing.T) {
	dir := foreign(t)
	g := serveDir(t, dir, nil)
	rootOnly := g.put("root-only", "secret")
	g.must(os.Chmod(rootOnly, 0o600))
	g.put("readable", "x")
	hidden := filepath.Join(dir, "root-dir")
	g.must(os.Mkdir(hidden, 0o700))

	fid, err := g.create(rootFID, "f", wire.OpenBoth, 0o600)
	g.must(err)
	a, err := g.getattr(fid)
	g.must(err)
	if a.uid != guestUID || a.gid != guestGID {
		t.Errorf("in the guest the new file belongs to %d:%d", a.uid, a.gid)
	}
	g.must(g.mkdir(rootFID, "d"))
	g.must(g.symlink(rootFID, "l", "x"))
	g.must(g.call(wire.Tmknod, uint32(rootFID), "s", uint32(unix.S_IFSOCK|0o600), uint32(0), uint32(0), uint32(0)))
	for _, name := range []string{"f", "d", "l", "s"} {
		var st unix.Stat_t
		g.must(unix.Lstat(filepath.Join(dir, name), &st))
		if st.Uid != otherUID || st.Gid != otherGID {
			t.Errorf("on the host %s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
	// What the owner may not, the guest may not, although berth is root.
	ro := g.mustWalk("root-only")
	g.want("read root's file", g.open(ro, wire.OpenRead), unix.EACCES)
	g.want("chmod root's file", g.chmod(ro, 0o666), unix.EPERM)
	_, err = g.walk(g.mustWalk("root-dir"), "x")
	g.want("look into root's folder", err, unix.EACCES)
	g.want("write a file that others may read", g.open(g.mustWalk("readable"), wire.OpenWrite), unix.EACCES)
	g.must(g.open(g.mustWalk("readable"), wire.OpenRead))
	if a, _ := g.getattr(ro); a.uid != nobody {
		t.Errorf("root's file appears as uid %d", a.uid)
	}
	// And this process still is who it was.
	if b, err := os.ReadFile(rootOnly); err != nil || string(b) != "secret" {
		t.Errorf("root can not read its file: %v", err)
	}
}

func TestRootReadsEverythingInItsOwnFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Skip(t, "only root has such rights")
	}
	g := serve(t, nil)
	p := g.put("f", "x")
	g.must(os.Chown(p, otherUID, otherGID))
	g.must(os.Chmod(p, 0o600))
	fid := g.mustWalk("f")
	if a, _ := g.getattr(fid); a.uid != nobody || a.gid != nobody {
		t.Errorf("another user's file appears as %d:%d", a.uid, a.gid)
	}
	g.must(g.open(fid, wire.OpenRead))
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := Check(dir + "/./"); err != nil {
		t.Errorf("control: %v", err)
	}
	for path, want := range map[string]string{
		dir + "/none":     "does not exist",
		file:              "is not a folder",
		link:              "is a symbolic link",
		link + "/":        "is a symbolic link",
		"/":               "the whole host",
		file + "/x":       "not a directory",
		dir + "/a\nb\x00": "invalid argument",
	} {
		err := Check(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	if err := Check(fmt.Sprintf("/proc/%d", os.Getpid())); err == nil || !strings.Contains(err.Error(), "is part of /proc") {
		t.Errorf("a folder of /proc: %v", err)
	}
	if hint.Of(Check(file)) == "" {
		t.Error("no hint")
	}
	if os.Geteuid() != 0 {
		if err := Check("/usr"); err == nil || !strings.Contains(err.Error(), "belongs to uid 0") {
			t.Errorf("root's folder for an ordinary user: %v", err)
		}
	} else if err := Check(foreign(t)); err != nil {
		t.Errorf("another user's folder for root: %v", err)
	}
}

func TestPrivateFolder(t *testing.T) {
	base := filepath.Join(t.TempDir(), "data")
	old := syscall.Umask(0) // the folder is private whatever the user's mask
	p, err := PrivateFolder(base, "notes")
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	if p != filepath.Join(base, "apps", "notes", "workspace") {
		t.Errorf("the folder is %s", p)
	}
	for dir := p; dir != filepath.Dir(base); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode() != os.ModeDir|0o700 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(p, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := PrivateFolder(base, "notes"); err != nil || again != p {
		t.Errorf("the second time: %s, %v", again, err)
	}
	if err := Check(p); err != nil {
		t.Errorf("it can not be shared: %v", err)
	}
	for _, app := range []string{"", "..", "a/b", ".hidden", "A", strings.Repeat("a", 64), "a\nb"} {
		if _, err := PrivateFolder(base, app); err == nil {
			t.Errorf("app %q got a folder", app)
		}
	}
}

func TestPrivateFolderDefaults(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", "")
	if p, err := PrivateFolder("", "a"); err != nil || p != filepath.Join(home, ".local/share/berth/apps/a/workspace") {
		t.Errorf("%s, %v", p, err)
	}
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "xdg"))
	if p, err := PrivateFolder("", "a"); err != nil || p != filepath.Join(home, "xdg/berth/apps/a/workspace") {
		t.Errorf("%s, %v", p, err)
	}
	t.Setenv("XDG_DATA_HOME", "relative") // to be ignored, says the specification
	if p, err := PrivateFolder("", "a"); err != nil || !strings.HasPrefix(p, home) {
		t.Errorf("%s, %v", p, err)
	}
}

func TestPrivateFolderRefusals(t *testing.T) {
	for name, prepare := range map[string]func(base string) error{
		"a link as the base": func(b string) error { return os.Symlink(t.TempDir(), b) },
		"a link on the way":  func(b string) error { return both(os.Mkdir(b, 0o700), os.Symlink("/tmp", b+"/apps")) },
		"a link at the end": func(b string) error {
			return both(os.MkdirAll(b+"/apps/a", 0o700), os.Symlink("/tmp", b+"/apps/a/workspace"))
		},
		"a file on the way":       func(b string) error { return both(os.Mkdir(b, 0o700), os.WriteFile(b+"/apps", nil, 0o600)) },
		"a base others may write": func(b string) error { return both(os.Mkdir(b, 0o700), os.Chmod(b, 0o777)) },
		"a parent all may write":  func(b string) error { return os.Chmod(filepath.Dir(b), 0o777) },
		"a folder of another": func(b string) error {
			if os.Geteuid() != 0 {
				return os.Symlink("/usr", b) // belongs to root; also a link
			}
			return both(os.Mkdir(b, 0o700), os.Chown(b, otherUID, otherGID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "data")
			if _, err := PrivateFolder(filepath.Join(t.TempDir(), "data"), "a"); err != nil {
				t.Fatalf("control: %v", err)
			}
			if err := prepare(base); err != nil {
				t.Fatal(err)
			}
			p, err := PrivateFolder(base, "a")
			if err == nil || hint.Of(err) == "" || p != "" {
				t.Errorf("%q, %v, hint %q", p, err, hint.Of(err))
			}
		})
	}
}

func both(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

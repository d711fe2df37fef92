package rootbuild

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/tools/testenv"
)

// sampleTree has what is easy to get wrong: empty and block-sized files, tails,
// long names and targets, folders of more than one block.
func sampleTree(t *testing.T) Tree {
	t.Helper()
	l := newLayout()
	add := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{0, 1, 4031, 4032, 4095, 4096, 4097, 8192, 3<<20 + 17} {
		data := bytes.Repeat([]byte("berth "), size/6+1)[:size]
		add(l.file(fmt.Sprintf("/sizes/%d", size), data))
	}
	for n := range 700 {
		add(l.file(fmt.Sprintf("/many/file-with-a-name-of-some-length-%04d", n), []byte(fmt.Sprint(n))))
	}
	long := strings.Repeat("n", 255)
	add(l.file("/"+long+"/"+long, []byte("long")))
	add(l.link("/bin/sh", "gosh"))
	add(l.link("/bin/gosh", "bb"))
	add(l.link("/bin/abs", "/bin/bb"))
	add(l.link("/bin/long", "../"+long+"/"+long))
	source := filepath.Join(t.TempDir(), "bb")
	if err := os.WriteFile(source, bytes.Repeat([]byte{0x7f, 'E', 'L', 'F', 0}, 300_001), 0o600); err != nil {
		t.Fatal(err)
	}
	add(l.program("/bin/bb", source))
	for _, d := range []string{"/proc", "/run", "/empty/in/empty"} {
		add(l.dir(d))
	}
	tree, err := l.tree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// image writes tree into a file.
func image(t *testing.T, tree Tree) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "root.img")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteImage(f, tree, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestImageReadsBack(t *testing.T) {
	tree := sampleTree(t)
	f, err := os.Open(image(t, tree))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	back, err := ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := back.List(), tree.List(); got != want {
		t.Errorf("file lists differ\ngot:\n%s\nwant:\n%s", got, want)
	}
	for n, e := range back {
		if e.Mode.IsRegular() && !bytes.Equal(e.Data, content(t, tree[n])) {
			t.Errorf("%s: content differs", e.Path)
		}
	}
}

func content(t *testing.T, e Entry) []byte {
	t.Helper()
	r, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImageIsDeterministic(t *testing.T) {
	tree := sampleTree(t)
	one, two := image(t, tree), image(t, tree)
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two images of one tree differ")
	}
	if len(a)%BlockSize != 0 {
		t.Errorf("image has %d bytes, which are not whole blocks", len(a))
	}
}

// TestKernelAndToolsAgree has the image checked by erofs-utils and mounted by
// the kernel of this machine, and compares every byte, mode, owner and time.
func TestKernelAndToolsAgree(t *testing.T) {
	tree := sampleTree(t)
	name := image(t, tree)
	fsck, err := exec.LookPath("fsck.erofs")
	if err != nil {
		testenv.Skip(t, "fsck.erofs is not installed (erofs-utils)")
	}
	if out, err := exec.Command(fsck, name).CombinedOutput(); err != nil {
		t.Errorf("fsck.erofs: %v\n%s", err, out)
	}
	mounted(t, name, func(mnt string) {
		if err := CompareMounted(mnt, tree); err != nil {
			t.Error(err)
		}
		comparisonSeesChanges(t, mnt, tree)
	})
}

// comparisonSeesChanges is the control: a changed byte, mode or target is found.
func comparisonSeesChanges(t *testing.T, mnt string, tree Tree) {
	for n, e := range tree {
		changed := e
		switch {
		case e.Path == "/sizes/4096":
			changed.Data = append(bytes.Clone(e.Data[1:]), '!')
		case e.Path == "/many/file-with-a-name-of-some-length-0003":
			changed.Mode = 0o755
		case e.Path == "/bin/sh":
			changed.Target = "bb"
		default:
			continue
		}
		tree[n] = changed
		if err := CompareMounted(mnt, tree); err == nil {
			t.Errorf("comparison did not see a change of %s", e.Path)
		}
		tree[n] = e
	}
}

// mounted runs check on the image, mounted read-only in a mount namespace that
// ends with it.
func mounted(t *testing.T, name string, check func(mnt string)) {
	t.Helper()
	if os.Getuid() != 0 {
		testenv.Skip(t, "only root may mount an image")
	}
	mnt := t.TempDir()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here, and its namespace with it
		err := mountPrivately(name, mnt)
		if err == nil {
			check(mnt)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		testenv.Skip(t, fmt.Sprintf("cannot mount an EROFS image on this kernel: %v", err))
	}
}

func mountPrivately(name, mnt string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	// The command sets up the loop device; it inherits this thread's namespace.
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro,nodev,nosuid", name, mnt).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

func TestCheckRefuses(t *testing.T) {
	for name, e := range map[string]Entry{
		"owner":      {Path: "/x", Mode: 0o644, UID: 1},
		"group":      {Path: "/x", Mode: 0o644, GID: 1},
		"setuid":     {Path: "/x", Mode: 0o755 | fs.ModeSetuid},
		"setgid":     {Path: "/x", Mode: 0o755 | fs.ModeSetgid},
		"sticky":     {Path: "/x", Mode: 0o755 | fs.ModeDir | fs.ModeSticky},
		"writable":   {Path: "/x", Mode: 0o666},
		"group may":  {Path: "/x", Mode: 0o664},
		"device":     {Path: "/x", Mode: 0o600 | fs.ModeDevice},
		"no target":  {Path: "/x", Mode: 0o777 | fs.ModeSymlink, Target: "nowhere"},
		"above root": {Path: "/x", Mode: 0o777 | fs.ModeSymlink, Target: "../../etc"},
	} {
		if err := (Tree{e}).Check(); err == nil {
			t.Errorf("%s: %v was accepted", name, e)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	l := newLayout()
	if err := l.file("/a/b", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/a/b", "/a/b/c", "/a", "relative", "/a/../c", "/"} {
		if err := l.file(name, nil); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

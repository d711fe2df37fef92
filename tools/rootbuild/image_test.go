package rootbuild_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/rootbuild"
	"github.com/berthos/berth/tools/testimage"
	"github.com/berthos/berth/tools/verity"
)

// TestKernelReadsWhatTheLibraryReads has the kernel of this machine mount the
// image that is booted, hash tree and all. mkimage compared what the library
// reads with what it had put in.
func TestKernelReadsWhatTheLibraryReads(t *testing.T) {
	name := filepath.Join(testimage.Dir(t, index.KindImage), "root.img")
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := rootbuild.ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	rootbuild.Mounted(t, name, func(mnt string) {
		if err := rootbuild.CompareMounted(mnt, tree); err != nil {
			t.Error(err)
		}
	})
}

// TestCommandsRun runs commands of the busybox inside the mounted root: by
// their links, through the shell, and with the names resolved from passwd.
func TestCommandsRun(t *testing.T) {
	name := filepath.Join(testimage.Dir(t, index.KindImage), "root.img")
	rootbuild.Mounted(t, name, func(mnt string) {
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"/bin/ls", "/apps"}, "attack\nfilesystem\n"},
			{[]string{"/bin/sh", "-c", "echo a b | wc -w"}, "2\n"},
			{[]string{"/bin/bb", "cat", "/etc/hostname"}, "berth\n"},
			{[]string{"/bin/grep", "-c", ":10000:", "/etc/passwd"}, "1\n"},
		} {
			cmd := exec.Command(c.args[0], c.args[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: mnt}
			cmd.Dir, cmd.Env = "/", []string{"PATH=/bin"}
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != c.want {
				t.Errorf("%q: got %q, %v; want %q", c.args, out, err, c.want)
			}
		}
	})
}

func TestTreeOfTheImageVerifies(t *testing.T) {
	dir := testimage.Dir(t, index.KindImage)
	i, _, err := index.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := verity.Verify(t.Context(), filepath.Join(dir, i.Root.File), i.Root.VerityRoot, i.Root.DataSize); err != nil {
		t.Error(err)
	}
}

package imagebuild

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/tools/testenv"
)

// TestFullDisk publishes onto a file system that is too small: one error with a
// hint, and nothing left that would keep it full.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Skip(t, "only root may mount a small file system")
	}
	disk := t.TempDir()
	digest, files := sources(t, "1.0.0")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the mount namespace ends with the thread
		if err := smallDisk(disk); err != nil {
			done <- err
			return
		}
		_, err := publish(filepath.Join(disk, "image"), digest, files)
		if !errors.Is(err, unix.ENOSPC) || hint.Of(err) == "" {
			t.Errorf("got %v with hint %q", err, hint.Of(err))
		}
		onlyImage(t, disk)
		done <- nil
	}()
	if err := <-done; err != nil {
		testenv.Skip(t, "cannot mount a tmpfs: "+err.Error())
	}
}

func smallDisk(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8k")
}

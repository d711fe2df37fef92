package native

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"
)

// mountRoot mounts the sealed image at rootDir, with its ids mapped by users.
func mountRoot(image *os.File, size int64, users *os.File) error {
	loop, err := attachLoop(image, size)
	if err != nil {
		return err
	}
	defer loop.Close() // the mount keeps it; the kernel detaches it with the last user
	ctx, err := unix.Fsopen("erofs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot open erofs: %w", err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigSetString(ctx, "source", loop.Name()); err != nil {
		return fmt.Errorf("cannot name %s to erofs: %w", loop.Name(), err)
	}
	if err := unix.FsconfigSetFlag(ctx, "ro"); err != nil {
		return fmt.Errorf("cannot ask erofs to be read-only: %w", err)
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("cannot read %s as erofs: %w", loop.Name(), err)
	}
	tree, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("cannot mount erofs: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return fmt.Errorf("cannot map the ids of erofs: %w", err)
	}
	return attach(tree, rootDir)
}

// attachLoop makes a read-only block device of the image that goes away with
// its last user.
func attachLoop(image *os.File, size int64) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot get a loop device: %w", err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: 4096, Info: unix.LoopInfo64{
		Sizelimit: uint64(size),
		Flags:     unix.LO_FLAGS_READ_ONLY | unix.LO_FLAGS_AUTOCLEAR,
	}}
	for range 32 { // others may take the free device that we were told of
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("cannot get a loop device: %w", err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot get a loop device: %w", err)
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("cannot set up %s: %w", dev.Name(), err)
		}
	}
	return nil, errors.New("cannot get a loop device: all that were free were taken by others")
}

// unpackRoot copies the image into a tmpfs of the sandbox at rootDir, owned by
// ids from base on, or all by this process if own is set.
func unpackRoot(image *os.File, size int64, base uint32, own bool) error {
	options := fmt.Sprintf("mode=0755,size=%d", size+size/4+1<<20)
	if err := unix.Mount("berth-root", rootDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("cannot mount a tmpfs for the root file system: %w", err)
	}
	img, err := erofs.Open(io.NewSectionReader(image, 0, size))
	if err != nil {
		return fmt.Errorf("cannot read the root image: %w", err)
	}
	buf := make([]byte, 1<<20)
	err = fs.WalkDir(img, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return unpackOne(img, name, info, base, own, buf)
	})
	if err != nil {
		return fmt.Errorf("cannot unpack the root image: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, rootDir, 0, &attr); err != nil {
		return fmt.Errorf("cannot make the root file system read-only: %w", err)
	}
	return nil
}

func unpackOne(img fs.FS, name string, info fs.FileInfo, base uint32, own bool, buf []byte) error {
	target := filepath.Join(rootDir, filepath.FromSlash(name))
	var err error
	switch info.Mode().Type() {
	case 0:
		err = unpackFile(img, name, target, buf)
	case fs.ModeDir:
		if name != "." {
			err = os.Mkdir(target, 0o755)
		}
	case fs.ModeSymlink:
		err = unpackLink(img, name, target)
	default:
		err = fmt.Errorf("%s has type %s, which the root file system must not hold", name, info.Mode().Type())
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*erofs.Stat); ok && !own {
		if err := os.Lchown(target, int(base+st.UID), int(base+st.GID)); err != nil {
			return err
		}
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return nil
	}
	return os.Chmod(target, info.Mode().Perm())
}

func unpackFile(img fs.FS, name, target string, buf []byte) error {
	in, err := img.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, buf); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func unpackLink(img fs.FS, name, target string) error {
	links, ok := img.(fs.ReadLinkFS)
	if !ok {
		return errors.New("cannot read symlinks of the root image")
	}
	to, err := links.ReadLink(name)
	if err != nil {
		return err
	}
	return os.Symlink(to, target)
}

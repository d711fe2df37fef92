package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Attributes of mounts. Everything that an app sees has the first set.
const (
	attrSafe     = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrReadOnly = unix.MOUNT_ATTR_RDONLY
	attrNoExec   = unix.MOUNT_ATTR_NOEXEC
)

// option is a mount option; without a value it is a flag.
type option struct{ key, value string }

// newFilesystem makes a mount of a new file system that is nowhere yet.
func newFilesystem(kind string, attrs int, options ...option) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot open file system %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range append(options, option{"source", "berth"}) {
		if err := unix.FsconfigSetString(fs, o.key, o.value); err != nil {
			return -1, fmt.Errorf("cannot set %s=%s for %s: %w", o.key, o.value, kind, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("cannot create %s: %w", kind, err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("cannot mount %s: %w", kind, err)
	}
	return mount, nil
}

// open opens name below dir for use as a handle. No symlink is followed, and
// nothing outside dir is reached, whatever happens to the tree meanwhile.
func open(dir int, name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// openAbs opens an absolute path of PID 1's tree without following a symlink.
func openAbs(name string) (int, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return open(root, name[1:])
}

// clone makes a mount of what handle refers to, with everything mounted below
// it, that is nowhere yet. Its attributes hold before anybody can reach it.
func clone(handle int, attrs uint64) (int, error) {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	mount, err := unix.OpenTree(handle, "", flags)
	if err != nil {
		return -1, fmt.Errorf("cannot clone mount: %w", err)
	}
	if err := setAttrs(mount, attrs, unix.AT_RECURSIVE); err != nil {
		unix.Close(mount)
		return -1, err
	}
	return mount, nil
}

func setAttrs(mount int, attrs uint64, flags uint) error {
	attr := unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|flags, &attr); err != nil {
		return fmt.Errorf("cannot set mount attributes: %w", err)
	}
	return nil
}

// attach puts a mount on the folder or file that place refers to.
func attach(mount, place int) error {
	const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(mount, "", place, "", flags); err != nil {
		return fmt.Errorf("cannot attach mount: %w", err)
	}
	return nil
}

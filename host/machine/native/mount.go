package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// All paths below are relative to the stage, which is the working directory.
const (
	rootDir   = "root"
	sharesDir = "shares"
)

// enterStage makes mounts private to this namespace, mounts a small tmpfs on
// path and makes it the working directory. A working directory, unlike a path,
// is still reached after the identity changed.
func enterStage(path string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	if err := unix.Mount("berth", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("cannot mount the stage: %w", err)
	}
	if err := unix.Chdir(path); err != nil {
		return fmt.Errorf("cannot enter the stage: %w", err)
	}
	for _, dir := range []string{rootDir, sharesDir, emptyDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(emptyFile, nil, 0o444)
}

// clone returns a detached copy of the mounts at path, which may be relative
// to dir.
func clone(dir int, path string, flags uint) (int, error) {
	tree, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	if err != nil {
		return -1, fmt.Errorf("cannot clone the mount: %w", err)
	}
	return tree, nil
}

// attach puts a detached mount on target and closes it.
func attach(tree int, target string) error {
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot attach the mount at %s: %w", target, err)
	}
	return nil
}

// bind clones the mounts at from, with all that is below, sets attributes on
// them, and attaches them at target.
func bind(from, target string, attrs uint64) error {
	tree, err := clone(unix.AT_FDCWD, from, unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	if attrs != 0 {
		attr := unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			unix.Close(tree)
			return fmt.Errorf("cannot restrict the mount of %s: %w", from, err)
		}
	}
	return attach(tree, target)
}

// bindShare attaches a share of the host at target. users, if not negative,
// is the user namespace whose mapping its files are seen through.
func bindShare(s planShare, target string, users int) error {
	fd, err := s.reopen()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	tree, err := clone(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	if err := restrictShare(s, tree, users); err != nil {
		unix.Close(tree)
		return err
	}
	if err := attach(tree, target); err != nil {
		return err
	}
	return cover(s, target)
}

func restrictShare(s planShare, tree, users int) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if s.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("cannot restrict the mount: %w", err)
	}
	if users < 0 {
		return nil
	}
	return mapIDs(s, tree, users)
}

// tmpfs makes target if need be and mounts an empty tmpfs on it.
func tmpfs(target, options string, flags uintptr) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|flags, options); err != nil {
		return fmt.Errorf("cannot mount a tmpfs at /%s: %w", relTo(target), err)
	}
	return nil
}

// relTo is how the sandbox will know a place of the stage.
func relTo(target string) string {
	rel, err := filepath.Rel(rootDir, target)
	if err != nil {
		return target
	}
	return rel
}

// refused reports whether the kernel will not have it here, as against broken.
func refused(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL)
}

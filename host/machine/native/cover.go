package native

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What hidden places are covered with, in the stage.
const (
	emptyDir  = "empty"
	emptyFile = "empty-file"
)

// cover hides and protects places of an attached share. They are opened
// without following any symlink, as whoever may write to the folder could
// exchange them meanwhile.
func cover(s planShare, target string) error {
	base, err := unix.Open(target, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the share: %w", err)
	}
	defer unix.Close(base)
	for _, rel := range s.Hide {
		if err := coverOne(base, string(rel), true); err != nil {
			return fmt.Errorf("cannot hide %s: %w", filepath.Join(string(s.Dir), string(rel)), err)
		}
	}
	for _, rel := range s.Protect {
		if err := coverOne(base, string(rel), false); err != nil {
			return fmt.Errorf("cannot make %s read-only: %w", filepath.Join(string(s.Dir), string(rel)), err)
		}
	}
	return nil
}

func coverOne(base int, rel string, hide bool) error {
	place, err := unix.Openat2(base, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(place)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	var tree int
	switch {
	case !hide:
		tree, err = clone(place, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		tree, err = clone(unix.AT_FDCWD, emptyDir, 0)
	default:
		tree, err = clone(unix.AT_FDCWD, emptyFile, 0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

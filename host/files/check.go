//go:build linux

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/hint"
	"golang.org/x/sys/unix"
)

// Check reports why a folder can not be a workspace: it must exist, be a
// directory (named itself, not through a symbolic link as its last component)
// and belong to who runs Berth. Root may share any folder; it is then served
// with the rights of the folder's owner.
func Check(dir string) error {
	_, err := check(dir)
	return err
}

// owner is who a folder is served as.
type owner struct {
	path     string // absolute
	uid, gid uint32
	dev, ino uint64
	become   bool // this process is root and the folder is not root's
	aliases  bool // the file system finds files also by names that it does not list
}

func check(dir string) (*owner, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot share %s: %w", dir, err)
	}
	info, err := os.Lstat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, hint.Errorf("create it first, or give another folder", "cannot share %s: it does not exist", dir)
	case err != nil:
		return nil, fmt.Errorf("cannot share %s: %w", dir, errors.Unwrap(err))
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, hint.Errorf("give the folder that the link points to", "cannot share %s: it is a symbolic link", dir)
	case !info.IsDir():
		return nil, hint.Errorf("give the folder that contains it", "cannot share %s: it is not a folder", dir)
	case abs == "/":
		return nil, hint.Errorf("give the folder that the app works on", "cannot share /: that is the whole host")
	}
	return checkOwner(dir, abs)
}

func checkOwner(dir, abs string) (*owner, error) {
	var st unix.Stat_t
	if err := unix.Lstat(abs, &st); err != nil {
		return nil, fmt.Errorf("cannot share %s: %w", dir, err)
	}
	o := &owner{path: abs, uid: st.Uid, gid: st.Gid, dev: st.Dev, ino: st.Ino}
	if me := uint32(os.Geteuid()); st.Uid != me {
		if me != 0 {
			return nil, hint.Errorf("share a folder of your own, or a copy of this one",
				"cannot share %s: it belongs to uid %d, and you are uid %d", dir, st.Uid, me)
		}
		o.become = true
	}
	var fst unix.Statfs_t
	if err := unix.Statfs(abs, &fst); err != nil {
		return nil, fmt.Errorf("cannot share %s: %w", dir, err)
	}
	if what := pseudo(int64(fst.Type)); what != "" {
		return nil, hint.Errorf("give the folder that the app works on",
			"cannot share %s: it is part of %s, through which the kernel of this host is told what to do", dir, what)
	}
	o.aliases = hasAliases(int64(fst.Type))
	return o, nil
}

// pseudo names a file system that holds no files of anybody, or "". What is
// written there is a command to the kernel, or to a device or a process.
func pseudo(magic int64) string {
	switch uint32(magic) {
	case unix.PROC_SUPER_MAGIC:
		return "/proc"
	case unix.SYSFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC:
		return "/sys"
	case unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return "the cgroups"
	case unix.DEVPTS_SUPER_MAGIC:
		return "/dev"
	}
	return ""
}

// group is the group that files of the owner have by default.
func (o *owner) group() uint32 {
	if o.become {
		return o.gid
	}
	return uint32(os.Getegid())
}

// confirm makes sure that what was opened is what was checked.
func (o *owner) confirm(root *beneath.Root) error {
	d := root.Dir()
	defer d.Release()
	st, err := d.Stat()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", o.path, err)
	}
	if d.Ino != o.ino || d.Dev != o.dev || st.Uid != o.uid {
		return fmt.Errorf("cannot share %s: it was replaced while it was opened", o.path)
	}
	return nil
}

// hasAliases names the file systems on which a file answers to a short name
// (LONGNA~1) beside its own.
func hasAliases(magic int64) bool {
	switch uint32(magic) {
	case unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC,
		unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, 0x5346544e /* ntfs */, 0x7366746e /* ntfs3 */ :
		return true
	}
	return false
}

package probe

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// mounting are the layers around changes of the mount tree.
var mounting = []Layer{{seccomp}, {landlock}, root}

// privileged are the layers around what needs a capability.
var privileged = []Layer{{seccomp}, root}

// notAllowed are the errnos of calls that are refused whatever they are about.
var notAllowed = []syscall.Errno{unix.EPERM, unix.ENOSYS}

func place(w World, id string) string { return filepath.Join(w.Write, id, "d") }

// mounts change the mount tree by the old calls.
func mounts() []Probe {
	return []Probe{
		{ID: "MT-01m", What: "mount a tmpfs", Blocks: []string{"fs.change_topology"}, Layers: mounting, Want: notAllowed, Run: func(w World, id string) error {
			if err := unix.Mount("probe", place(w, id), "tmpfs", 0, ""); err != nil {
				return err
			}
			return unix.Unmount(place(w, id), unix.MNT_DETACH)
		}},
		{ID: "MT-01b", What: "bind / elsewhere", Blocks: []string{"fs.change_topology"}, Layers: mounting, Want: notAllowed, Run: func(w World, id string) error {
			if err := unix.Mount("/", place(w, id), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return err
			}
			return unix.Unmount(place(w, id), unix.MNT_DETACH)
		}},
		{ID: "MT-01u", What: "take /proc away", Blocks: []string{"fs.change_topology"}, On: "/", Layers: mounting, Want: notAllowed, Run: func(World, string) error {
			fd, err := unix.Open("/proc", unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return errors.Join(errSetUp, err)
			}
			defer unix.Close(fd)
			// Only the right to do it: MNT_EXPIRE answers EAGAIN or EBUSY first.
			return reached(errnoOf(unix.Unmount("/proc", unix.MNT_EXPIRE)))
		}},
		{ID: "MT-01r", What: "make /proc writable by a remount", Layers: mounting, Want: notAllowed, Blocks: []string{"fs.change_topology"}, On: "/", Run: func(World, string) error {
			return unix.Mount("", "/proc", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}},
		{ID: "MT-01g", What: "mount the control groups, for their release agent", Layers: mounting, Want: notAllowed, Not: needsRoot, Absent: []syscall.Errno{unix.ENODEV}, Blocks: []string{"fs.change_topology"}, Run: func(w World, id string) error {
			if err := unix.Mount("probe", place(w, id), "cgroup2", 0, ""); err != nil {
				return err
			}
			return unix.Unmount(place(w, id), unix.MNT_DETACH)
		}},
		{ID: "MT-01p", What: "pivot_root", Blocks: []string{"fs.change_topology"}, On: "/", Layers: mounting, Want: notAllowed, Run: func(World, string) error {
			// The root as its own new root: EBUSY, after everything else.
			return reached(errnoOf(unix.PivotRoot("/", "/")))
		}},
		{ID: "MT-01c", What: "chroot", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return unix.Chroot("/")
		}},
	}
}

// newMounts change it by the new ones.
func newMounts() []Probe {
	return []Probe{
		{ID: "MT-02f", What: "make a file system with fsopen", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{ID: "MT-02t", What: "clone a mount with open_tree", Layers: privileged, Want: notAllowed, Run: func(w World, id string) error {
			fd, err := unix.OpenTree(unix.AT_FDCWD, place(w, id), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{ID: "MT-02h", What: "open_tree without clone", Layers: []Layer{{seccomp}}, Want: notAllowed, Run: func(w World, id string) error {
			fd, err := unix.OpenTree(unix.AT_FDCWD, place(w, id), unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{ID: "MT-02a", What: "change the attributes of a mount", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return unix.MountSetattr(unix.AT_FDCWD, "/proc", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV})
		}},
	}
}

// namespaces make or enter some.
func namespaces(w World) []Probe {
	nested := []Layer{{seccomp}, {landlock}, {readOnly}}
	if w.User { // whose uid 0 may map itself only with CAP_SETFCAP
		nested = append(nested, Layer{caps})
	}
	return []Probe{
		{ID: "MT-03u", What: "make a user namespace", Absent: []syscall.Errno{unix.EINVAL}, Layers: []Layer{{seccomp}}, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWUSER)
		}},
		{ID: "MT-03n", What: "make a mount namespace", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWNS)
		}},
		{ID: "MT-03o", What: "make a network namespace", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWNET)
		}},
		{ID: "MT-03p", What: "make a pid namespace", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWPID)
		}},
		{ID: "MT-03i", What: "make an IPC namespace", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWIPC)
		}},
		{ID: "MT-03h", What: "make a host name namespace", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWUTS)
		}},
		{ID: "MT-03g", What: "make a cgroup namespace", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWCGROUP)
		}},
		{ID: "MT-03t", What: "make a time namespace", Absent: []syscall.Errno{unix.EINVAL}, Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			return unix.Unshare(unix.CLONE_NEWTIME)
		}},
		{ID: "MT-03s", What: "unshare file system attributes", Layers: []Layer{{seccomp}}, Want: notAllowed, Run: func(World, string) error {
			return unix.Unshare(unix.CLONE_FILES)
		}},
		{ID: "MT-03e", What: "enter namespaces through a pidfd", Layers: privileged, Want: notAllowed, Run: func(World, string) error {
			fd, err := unix.PidfdOpen(os.Getpid(), 0)
			if err != nil {
				return errors.Join(errSetUp, err)
			}
			defer unix.Close(fd)
			return unix.Setns(fd, unix.CLONE_NEWUTS)
		}},
		{ID: "MT-04", What: "mount in a user namespace of the app's own", Absent: []syscall.Errno{unix.EINVAL}, Layers: nested, Want: []syscall.Errno{unix.EPERM, unix.ENOSYS, unix.EACCES, unix.EROFS}, Run: func(World, string) error {
			return spawn(unix.CLONE_NEWUSER|unix.CLONE_NEWNS, argMount)
		}},
		{ID: "MT-06", What: "start processes and threads", Must: true, Run: func(World, string) error {
			return errors.Join(spawn(0), spawn(0), spawn(unix.CLONE_VFORK))
		}},
	}
}

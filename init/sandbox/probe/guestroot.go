package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// GuestRoot are attacks on the host by root of a guest whose kernel enforces
// nothing any more: all layers inside are left out. What stands in the way is
// the machine, its devices and the host's file server. Write is in a share, Read
// in one that the host serves read-only.
func (w World) GuestRoot() []Probe {
	refusedByHost := []syscall.Errno{unix.EACCES, unix.EPERM, unix.EROFS, unix.EOPNOTSUPP}
	return []Probe{
		{ID: "GR-00", What: "mount, as root of the guest can", Must: true, Run: func(World, string) error {
			return errors.Join(os.MkdirAll("/tmp/mounted", 0o700), unix.Mount("tmpfs", "/tmp/mounted", "tmpfs", 0, ""))
		}},
		{ID: "GR-01", What: "speak on the port that the link uses", Want: []syscall.Errno{unix.EBUSY}, Run: func(World, string) error {
			return eachDevice("class/virtio-ports/*", unix.S_IFCHR, func(name string) error {
				return overwrite(name, unix.O_WRONLY|unix.O_NONBLOCK)
			})
		}},
		{ID: "GR-02", What: "write to a disk of the machine", Want: append(refusedByHost, unix.ENOENT), Run: func(World, string) error {
			return eachDevice("class/block/vd*", unix.S_IFBLK, func(name string) error { return overwrite(name, unix.O_WRONLY) })
		}},
		{ID: "GR-03", What: "connect to the host by vsock", Want: []syscall.Errno{unix.EAFNOSUPPORT, unix.ENODEV}, Run: func(World, string) error {
			fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_HOST, Port: 22})
		}},
		{ID: "GR-04", What: "find a virtio device that is no disk, console or source of randomness", Want: []syscall.Errno{unix.ENODEV}, Run: func(World, string) error {
			return otherDevice("0x0002", "0x0003", "0x0004")
		}},
		{ID: "GR-05", What: "make a read-only share writable", Want: refusedByHost, Run: func(w World, _ string) error {
			_ = unix.Mount("", filepath.Dir(w.Read), "", unix.MS_REMOUNT|unix.MS_BIND, "")
			_ = unix.Mount("", w.Read, "", unix.MS_REMOUNT|unix.MS_BIND, "")
			return overwrite(filepath.Join(w.Read, "f"), unix.O_WRONLY)
		}},
		{ID: "GR-06", What: "make a file that the host's git executes", Want: refusedByHost, Run: func(w World, _ string) error {
			if err := os.MkdirAll(filepath.Join(w.Write, ".git", "hooks"), 0o755); err != nil {
				return err
			}
			return overwrite(filepath.Join(w.Write, ".git", "hooks", "pre-commit"), unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "GR-07", What: "make a file that runs as its owner on the host", Want: append(refusedByHost, unix.EINVAL), Run: func(w World, id string) error {
			name := filepath.Join(w.Write, id)
			if err := overwrite(name, unix.O_CREAT|unix.O_WRONLY); err != nil {
				return errors.Join(errSetUp, err)
			}
			var st unix.Stat_t
			err := errors.Join(unix.Chmod(name, 0o6755), unix.Stat(name, &st))
			if err == nil && st.Mode&0o6000 == 0 {
				return unix.EPERM // it says that it did, and did not
			}
			return err
		}},
		{ID: "GR-08", What: "make a device in a share", Want: refusedByHost, Run: func(w World, id string) error {
			return unix.Mknod(filepath.Join(w.Write, id), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		}},
		{ID: "GR-09", What: "give a file of a share to another user of the host", Want: refusedByHost, Run: func(w World, id string) error {
			name := filepath.Join(w.Write, id)
			if err := overwrite(name, unix.O_CREAT|unix.O_WRONLY); err != nil {
				return errors.Join(errSetUp, err)
			}
			return unix.Chown(name, 12345, 12345)
		}},
		{ID: "GR-10", What: "reach another share of the machine, which is none of this sandbox", Want: append(refusedByHost, unix.ENOENT, unix.EINVAL, unix.ENODEV), Run: func(World, string) error {
			for _, tag := range []string{"share0", "hostshare", "mount_tag", "/"} {
				if err := os.MkdirAll("/tmp/other", 0o700); err != nil {
					return errors.Join(errSetUp, err)
				}
				err := unix.Mount(tag, "/tmp/other", "9p", 0, "trans=virtio,version=9p2000.L")
				if err == nil || tag == "/" {
					return err
				}
			}
			return nil
		}},
		{ID: "GR-11", What: "load code into the guest's kernel", Want: []syscall.Errno{unix.ENOSYS}, Run: func(World, string) error {
			_, _, errno := unix.Syscall(unix.SYS_FINIT_MODULE, 0, 0, 0)
			if errno == 0 {
				return nil
			}
			return errno
		}},
		{ID: "GR-12", What: "leave a link in a share that leads out of it on the host, and write through it", Want: append(refusedByHost, unix.ENOENT), Run: func(w World, id string) error {
			link := filepath.Join(w.Write, id)
			if err := unix.Symlink(w.Beyond, link); err != nil {
				return errors.Join(errSetUp, err)
			}
			return overwrite(link, unix.O_WRONLY)
		}},
	}
}

// sys is where root of the guest mounts sysfs.
const sys = "/tmp/sys"

func mountSys() error {
	if err := os.MkdirAll(sys, 0o700); err != nil {
		return errors.Join(errSetUp, err)
	}
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return errors.Join(errSetUp, err)
	}
	return nil
}

// eachDevice tries all devices that sysfs has of a kind, and fails with the last
// refusal; ENOENT if there are none.
func eachDevice(pattern string, kind uint32, try func(name string) error) error {
	if err := mountSys(); err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(sys, pattern))
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	last := error(unix.ENOENT)
	for _, dir := range all {
		var major, minor uint32
		raw, err := os.ReadFile(filepath.Join(dir, "dev"))
		if err == nil {
			_, err = fmt.Sscanf(string(raw), "%d:%d", &major, &minor)
		}
		node := "/tmp/mounted/" + filepath.Base(dir) // of GR-00: /tmp itself has no devices
		if err == nil {
			err = unix.Mknod(node, kind|0o600, int(unix.Mkdev(major, minor)))
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return errors.Join(errSetUp, err)
		}
		if last = try(node); last == nil {
			return nil
		}
	}
	return last
}

// otherDevice looks on the machine's virtio bus, which no namespace divides, for
// a device that is not of these types; ENODEV if there is none.
func otherDevice(types ...string) error {
	if err := mountSys(); err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(sys, "bus/virtio/devices/*/device"))
	if err != nil || len(all) == 0 {
		return errors.Join(errSetUp, err, errors.New("the bus has no device at all"))
	}
	for _, name := range all {
		raw, err := os.ReadFile(name)
		if err != nil {
			return errors.Join(errSetUp, err)
		}
		if !slices.Contains(types, strings.TrimSpace(string(raw))) {
			return nil
		}
	}
	return unix.ENODEV
}

// NothingInside are the names of all layers of an app, so that it is root of its
// machine.
func NothingInside() []string {
	return []string{hide, readOnly, noExec, noDev, proc, sysctls, rlimits, identity, caps, landlock, seccomp}
}

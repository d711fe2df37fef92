package probe

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// errSetUp marks what a probe needs and could not get: it proves nothing.
var errSetUp = errors.New("cannot set the probe up")

func itoa(n int) string { return strconv.Itoa(n) }

// readOnlyScope are the layers around a read scope: the mount and Landlock.
var readOnlyScope = []Layer{{readOnly}, {landlock}}

// errnos of what lies on a read-only mount, is not granted or does not exist.
var refused = []syscall.Errno{unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT, unix.EXDEV}

// scopes are attacks on what was granted, beyond how it was granted.
func scopes() []Probe {
	return []Probe{
		{ID: "FS-08", What: "move a file between folders of a write scope", Must: true, Run: func(w World, id string) error {
			return errors.Join(
				os.MkdirAll(in(w, id, "a"), 0o755), os.MkdirAll(in(w, id, "b"), 0o755),
				os.WriteFile(in(w, id, "a/x"), []byte("x"), 0o644),
				os.Rename(in(w, id, "a/x"), in(w, id, "b/x")),
				os.Link(in(w, id, "b/x"), in(w, id, "a/y")), os.Remove(in(w, id, "a/y")), os.Remove(in(w, id, "b/x")))
		}},
		{ID: "FS-08r", What: "read what is granted for reading", Must: true, Run: func(w World, id string) error {
			raw, err := os.ReadFile(ro(w, id, "f"))
			return effect(err, len(raw) > 0)
		}},
		{ID: "FS-16w", What: "write to a read scope", Blocks: []string{"fs.write_file"}, Layers: readOnlyScope, Want: refused, Run: func(w World, id string) error {
			return overwrite(ro(w, id, "f"), unix.O_WRONLY)
		}},
		{ID: "FS-16c", What: "chmod an own file in a read scope", Layers: []Layer{{readOnly}}, Want: refused, Run: func(w World, id string) error {
			return unix.Chmod(ro(w, id, "f"), 0o777)
		}},
		{ID: "FS-16o", What: "chown an own file in a read scope", Layers: []Layer{{readOnly}}, Want: refused, Run: func(w World, id string) error {
			return unix.Chown(ro(w, id, "f"), os.Getuid(), os.Getgid())
		}},
		{ID: "FS-16t", What: "set times in a read scope", Layers: []Layer{{readOnly}}, Want: refused, Run: func(w World, id string) error {
			return unix.UtimesNano(ro(w, id, "f"), []unix.Timespec{{Sec: 1}, {Sec: 1}})
		}},
		{ID: "FS-16x", What: "set an attribute in a read scope", Absent: []syscall.Errno{unix.EOPNOTSUPP}, Layers: []Layer{{readOnly}}, Want: refused, Run: func(w World, id string) error {
			return unix.Setxattr(ro(w, id, "f"), "user.probe", []byte("x"), 0)
		}},
		{ID: "FS-16u", What: "unlink in a read scope", Blocks: []string{"fs.remove_file"}, Layers: readOnlyScope, Want: refused, Run: func(w World, id string) error {
			return unix.Unlink(ro(w, id, "f"))
		}},
		{ID: "FS-22", What: "map a file of a read scope shared and writable", Blocks: []string{"fs.write_file"}, Layers: readOnlyScope, Want: refused, Run: func(w World, id string) error {
			return mapShared(ro(w, id, "f"))
		}},
		{ID: "FS-15m", What: "make a device node in a write scope", Blocks: []string{"fs.make_char"}, Layers: []Layer{root, {landlock}, {seccomp}}, Want: refused, Not: needsRoot, Run: func(w World, id string) error {
			return unix.Mknod(in(w, id, "node"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		}},
		{ID: "FS-15o", What: "open a device node that lies in a write scope", Blocks: []string{"fs.read_file", "fs.write_file"}, Silent: noDev, Layers: []Layer{{noDev}}, Want: refused, Run: func(w World, id string) error {
			return openClose(in(w, id, "device"), unix.O_RDWR)
		}},
		{ID: "FS-24", What: "execute a file of a write scope", Silent: noExec, Blocks: []string{"fs.execute"}, Layers: []Layer{{landlock}, {noExec}}, Want: refused, Run: runCopy},
	}
}

// trees are attacks on the rest of the app's tree.
func trees(w World) []Probe {
	rootFolder := []Layer{{readOnly}, {landlock}, root}
	if w.User {
		rootFolder = readOnlyScope // its owner is the only uid there is
	}
	return []Probe{
		{ID: "FS-29o", What: "change the own OOM score", Blocks: []string{"fs.write_file"}, On: "oom_score_adj", Layers: []Layer{{readOnly}, {landlock}}, Want: refused, Run: func(World, string) error {
			if err := os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0); err != nil {
				return err
			}
			raw, err := os.ReadFile("/proc/self/oom_score_adj")
			return effect(err, string(raw) == "500\n")
		}},
		{ID: "FS-29c", What: "open core_pattern for writing", Blocks: []string{"fs.write_file"}, On: "core_pattern", Absent: []syscall.Errno{unix.ENOENT}, Layers: []Layer{{proc}, {readOnly}, {landlock}, root}, Want: refused, Not: needsRoot, Run: func(World, string) error {
			return openClose("/proc/sys/kernel/core_pattern", unix.O_WRONLY)
		}},
		{ID: "FS-30c", What: "read the kernel's command line", Layers: []Layer{{proc}}, Want: refused, Run: readAny("/proc/cmdline")},
		{ID: "FS-30k", What: "read the kernel's symbols", Layers: []Layer{{proc}}, Want: refused, Run: readAny("/proc/kallsyms")},
		{ID: "FS-30b", What: "see PID 1's files", Want: refused, Run: func(World, string) error {
			var st unix.Stat_t
			return unix.Stat("/run/berth", &st)
		}},
		{ID: "FS-30s", What: "see the programs of the root file system", Want: refused, Run: func(World, string) error {
			var st unix.Stat_t
			return unix.Stat("/sbin/agent-init", &st)
		}},
		{ID: "FS-31", What: "write to the app's own code", Blocks: []string{"fs.write_file"}, On: "/", Layers: []Layer{{readOnly}, {landlock}}, Want: refused, Run: func(w World, _ string) error {
			return openClose(w.Code, unix.O_WRONLY)
		}},
		{ID: "FS-32", What: "create in the root", Blocks: []string{"fs.make_reg"}, On: "/", Layers: rootFolder, Want: refused, Run: func(w World, id string) error {
			return overwrite("/"+id, unix.O_CREAT|unix.O_WRONLY)
		}},
		{ID: "FS-33", What: "use the devices that are there", Must: true, Run: useDevices},
		{ID: "FS-34", What: "work in /scratch", Must: true, Run: func(_ World, id string) error {
			return errors.Join(os.WriteFile("/scratch/"+id, []byte("x"), 0o600), os.Remove("/scratch/"+id))
		}},
	}
}

func readAny(name string) func(World, string) error {
	return func(World, string) error {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		n, err := unix.Read(fd, make([]byte, 64))
		return effect(err, n > 0)
	}
}

func mapShared(name string) error {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(page, "mmap")
	return unix.Munmap(page)
}

// runCopy copies this program into a write scope and executes it there.
func runCopy(w World, id string) error {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return errors.Join(errSetUp, err)
	}
	name := filepath.Join(w.Write, id, "program")
	if err := os.WriteFile(name, program, 0o755); err != nil {
		return errors.Join(errSetUp, err)
	}
	return run(name)
}

// run executes a copy of this program that does nothing.
func run(name string) error { return exec.Command(name, argNothing).Run() }

func useDevices(World, string) error {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zero.Close()
	b := bytes.Repeat([]byte{1}, 16)
	if _, err := zero.Read(b); err != nil || b[0] != 0 {
		return effect(err, b[0] == 0)
	}
	null, err := os.OpenFile("/dev/null", os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = null.Write(b)
	_, random := os.Stat("/dev/urandom")
	return errors.Join(err, random)
}

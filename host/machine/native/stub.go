package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine/keeper"
)

// StubArg is the first argument by which a program knows that it is the stub:
// pid 1 of a new sandbox, which finishes the mount tree and becomes /sbin/init.
const StubArg = "__native"

// Stub is the whole life of a stub. Descriptors from 3 on are: what /sbin/init
// inherits, then the report, the plan and the root image. The argument is the
// number of the first of these three.
func Stub(args []string) int {
	runtime.LockOSThread() // DieWithParent is about this thread
	first, err := strconv.Atoi(append(args, "")[0])
	if err != nil || first < 3 {
		fmt.Fprintln(os.Stderr, "berth starts this command itself; it is not for people")
		return 2
	}
	report := os.NewFile(uintptr(first), "report")
	raw, err := io.ReadAll(os.NewFile(uintptr(first+1), "plan"))
	if err := errors.Join(err, keeper.CloseFrom(first)); err != nil {
		keeper.Fail(report, "start sandbox", err)
		return 1
	}
	image := os.NewFile(uintptr(first+2), "root image")
	p, err := parsePlan(raw)
	if err == nil {
		err = become(p, image)
	}
	var f *stepError
	if !errors.As(err, &f) {
		f = &stepError{"start sandbox", err}
	}
	keeper.Fail(report, f.step, f.err)
	return 1
}

type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return "cannot " + e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

type step struct {
	name string
	run  func(p plan, image *os.File) error
}

// become runs the steps and executes /sbin/init. It returns only an error.
func become(p plan, image *os.File) error {
	steps := []step{{"stage the root file system", stageAsUser}}
	if p.Root { // the keeper has staged it, and the mounts are locked in here
		steps = []step{{"enter the stage", reopenStage}}
	}
	steps = append(steps,
		step{"mount /proc", mountProc},
		step{"bound what the kernel counts for a user", boundUser},
		step{"make /dev", makeDev},
		step{"mount /run and /tmp", mountScratch},
		step{"bind shares", bindShares},
		step{"change the root", pivot},
		step{"execute /sbin/init", execInit},
	)
	for _, s := range steps {
		if err := s.run(p, image); err != nil {
			return &stepError{s.name, err}
		}
	}
	return nil
}

// stageAsRoot prepares the stage in the keeper's mount namespace: the root file
// system and the shares, both with mapped ids. When the stub's namespace is
// made, the kernel locks these mounts and their attributes in it, so that not
// even the sandbox's own root can lift a read-only flag.
func stageAsRoot(p plan, image *os.File, note func(string)) error {
	if err := enterStage(p.Stage); err != nil {
		return err
	}
	if err := stageRoot(p, image, note); err != nil {
		return err
	}
	for _, s := range p.Shares {
		if err := stageShare(s, p.Base); err != nil {
			return err
		}
	}
	return nil
}

// stageRoot mounts the image, or copies it where the host will not mount it.
func stageRoot(p plan, image *os.File, note func(string)) error {
	users, err := userNamespace(rangeMap(p.Base), rangeMap(p.Base))
	if err != nil {
		return err
	}
	defer users.Close()
	if p.Unpack {
		err = errors.New("it was asked for")
	} else {
		err = mountRoot(image, p.Data, users)
	}
	if err == nil {
		return nil
	}
	note("the root file system was copied into memory: " + err.Error())
	return unpackRoot(image, p.Data, p.Base, false)
}

func stageShare(s planShare, base uint32) error {
	owners, err := userNamespace(ownerMap(s.UID, base), ownerMap(s.GID, base))
	if err != nil {
		return err
	}
	defer owners.Close()
	target := filepath.Join(sharesDir, s.Name)
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	if err := bindShare(s, target, int(owners.Fd())); err != nil {
		return fmt.Errorf("cannot share %s: %w", s.Dir, err)
	}
	return nil
}

// stageAsUser does the same inside the user namespace of an ordinary user.
func stageAsUser(p plan, image *os.File) error {
	if err := enterStage(p.Stage); err != nil {
		return err
	}
	return unpackRoot(image, p.Data, 0, true)
}

// reopenStage puts a copy of the root file system's mount over itself: the
// kernel does not let a locked mount become the root, but a copy of it.
func reopenStage(plan, *os.File) error {
	return bind(rootDir, rootDir, 0)
}

func mountProc(plan, *os.File) error {
	err := unix.Mount("proc", filepath.Join(rootDir, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if errors.Is(err, unix.EPERM) {
		return hint.Errorf("in a container, start it with --security-opt systempaths=unconfined, or use --machine qemu",
			"parts of the host's /proc are covered, as container engines do, so the kernel allows no new one: %w", err)
	}
	return err
}

// makeDev binds the few devices that programs expect, from the host.
func makeDev(plan, *os.File) error {
	dev := filepath.Join(rootDir, "dev")
	if err := tmpfs(dev, "mode=0755,size=64k,nr_inodes=64", unix.MS_NOEXEC); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		target := filepath.Join(dev, name)
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
		if err := bind("/dev/"+name, target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, filepath.Join(dev, link)); err != nil {
			return err
		}
	}
	pts := filepath.Join(dev, "pts")
	if err := os.Mkdir(pts, 0o755); err != nil {
		return err
	}
	return unix.Mount("devpts", pts, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
}

func mountScratch(plan, *os.File) error {
	if err := tmpfs(filepath.Join(rootDir, "run"), "mode=0755", unix.MS_NODEV); err != nil {
		return err
	}
	return tmpfs(filepath.Join(rootDir, "tmp"), "mode=1777", unix.MS_NODEV)
}

func bindShares(p plan, _ *os.File) error {
	for _, s := range p.Shares {
		target := filepath.Join(rootDir, bindDir(s.Name))
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		var err error
		if p.Root {
			err = bind(filepath.Join(sharesDir, s.Name), target, 0)
		} else {
			err = bindShare(s, target, -1)
		}
		if err != nil {
			return fmt.Errorf("cannot share %s: %w", s.Dir, err)
		}
	}
	return nil
}

// pivot makes the staged root the root and drops the host's tree.
func pivot(plan, *os.File) error {
	if err := unix.Chdir(rootDir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root lies over the new one
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot detach the host's tree: %w", err)
	}
	return unix.Chdir("/")
}

func execInit(p plan, _ *os.File) error {
	for fd := 3; fd < 3+p.Pass; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	if err := keeper.DieWithParent(); err != nil {
		return err
	}
	return unix.Exec("/sbin/init", append([]string{"/sbin/init"}, p.Init...), []string{"PATH=/sbin:/bin", "HOME=/", "LANG=C.UTF-8"})
}

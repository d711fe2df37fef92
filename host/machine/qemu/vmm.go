package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/machine/keeper"
)

// StubArg is the first argument by which a program knows that it is the stub:
// it locks itself in and becomes QEMU.
const StubArg = "__vmm"

// plan is what the keeper and the stub need to know.
type plan struct {
	Path string   `json:"path"` // of QEMU
	Args []string `json:"args"`
	KVM  bool     `json:"kvm"`
	ID   uint32   `json:"id"`   // uid and gid to run under; 0: as we are
	Last int      `json:"last"` // last descriptor to pass on
}

// Stub is the whole life of a stub.
func Stub([]string) int {
	runtime.LockOSThread() // DieWithParent is about this thread
	report := os.NewFile(fdReport, "report")
	raw, err := io.ReadAll(os.NewFile(fdPlan, "plan"))
	if err := errors.Join(err, keeper.CloseFrom(fdReport)); err != nil {
		fmt.Fprintln(os.Stderr, "berth starts this command itself; it is not for people")
		return 2
	}
	var p plan
	if err = json.Unmarshal(raw, &p); err == nil {
		err = become(p)
	}
	keeper.Fail(report, "start QEMU", err)
	return 1
}

// become confines this process and executes QEMU. It returns only an error.
func become(p plan) error {
	if err := confine(p); err != nil {
		return err
	}
	if err := changeIdentity(p); err != nil {
		return err
	}
	if err := keeper.DieWithParent(); err != nil {
		return err
	}
	for fd := fdLink; fd <= p.Last; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return unix.Exec(p.Path, append([]string{p.Path}, p.Args...), []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"})
}

// confine takes from this process, and so from QEMU, every file of the host but
// its own program, libraries and firmware, and the whole network. A guest that
// took over QEMU would find no more than that. On kernels without Landlock it
// does nothing: that VM is still a VM.
func confine(p plan) error {
	readOnly := []string{"/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/nix/store", "/gnu/store", "/run/current-system", "/sys/devices/system/cpu"}
	if real, err := filepath.EvalSymlinks(p.Path); err == nil {
		readOnly = append(readOnly, filepath.Dir(filepath.Dir(real)))
	}
	rules := []landlock.Rule{landlock.RWFiles("/dev/null", "/dev/zero").IgnoreIfMissing(), landlock.ROFiles("/dev/urandom", "/dev/random").IgnoreIfMissing()}
	for _, path := range readOnly {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			rules = append(rules, landlock.RODirs(path))
		} else if err == nil {
			rules = append(rules, landlock.ROFiles(path))
		}
	}
	if p.KVM {
		rules = append(rules, landlock.RWFiles("/dev/kvm").WithIoctlDev())
	}
	if err := landlock.V6.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("cannot confine QEMU: %w", err)
	}
	return nil
}

// changeIdentity gives up root for an id that nothing else has. Where /dev/kvm
// is root's alone it stays root without any capability.
func changeIdentity(p plan) error {
	if p.ID == 0 {
		return nil
	}
	groups, id := []int{}, int(p.ID)
	if p.KVM {
		var st unix.Stat_t
		if err := unix.Stat("/dev/kvm", &st); err != nil {
			return fmt.Errorf("cannot look at /dev/kvm: %w", err)
		}
		switch {
		case st.Mode&0o006 == 0o006: // for everybody
		case st.Mode&0o060 == 0o060:
			groups = []int{int(st.Gid)}
		default:
			return dropCapabilities()
		}
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("cannot give up groups: %w", err)
	}
	if err := syscall.Setresgid(id, id, id); err != nil {
		return fmt.Errorf("cannot give up the group root: %w", err)
	}
	if err := syscall.Setresuid(id, id, id); err != nil {
		return fmt.Errorf("cannot give up root: %w", err)
	}
	return nil
}

// dropCapabilities empties the bounding set: what is executed next has none.
func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("cannot drop capability %d: %w", c, err)
		}
	}
	return nil
}

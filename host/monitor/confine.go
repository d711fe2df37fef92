package monitor

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"github.com/berthos/berth/host/sandbox"
)

// Layers of the confinement, in the order in which they are put on. Each holds
// for every thread.
const (
	LayerCapabilities = "capabilities"
	LayerLandlock     = "landlock"
	LayerSeccomp      = "seccomp"
)

// confine takes from this process what it does not need to hold a sandbox, but
// for the layers in without, which only tests leave out. It returns sentences on
// what this kernel does not have.
func confine(r sandbox.Reach, without []string) (notes []string, err error) {
	_, _ = time.Now().Zone() // reads a file, the first time
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot confine the monitor: no_new_privs: %w", err)
	}
	for _, l := range []struct {
		name  string
		apply func(sandbox.Reach) (note string, err error)
	}{
		{LayerCapabilities, dropCapabilities},
		{LayerLandlock, restrictFiles},
		{LayerSeccomp, func(sandbox.Reach) (string, error) { return "", filterCalls() }},
	} {
		if slices.Contains(without, l.name) {
			continue
		}
		note, err := l.apply(r)
		if err != nil {
			return nil, fmt.Errorf("cannot confine the monitor: %s: %w", l.name, err)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes, nil
}

// Rights within a share. There is no right to execute, and none to make devices
// or fifos.
const (
	readRights  = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSReadDir)
	writeRights = readRights | landlock.AccessFSSet(ll.AccessFSWriteFile|ll.AccessFSTruncate|ll.AccessFSRemoveDir|ll.AccessFSRemoveFile|
		ll.AccessFSMakeDir|ll.AccessFSMakeReg|ll.AccessFSMakeSock|ll.AccessFSMakeSym|ll.AccessFSRefer)
	limitRights = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSWriteFile)
)

// restrictFiles leaves the shares, the runtime folder and the files of limits;
// no TCP, no signal and no abstract socket to who is outside.
func restrictFiles(r sandbox.Reach) (note string, err error) {
	if abi, err := ll.LandlockGetABIVersion(); err != nil || abi < 1 {
		return "the monitor is not confined by Landlock, which this kernel does not have", nil
	}
	rules := []landlock.Rule{landlock.PathAccess(writeRights, r.Dir)}
	for _, s := range r.Shares {
		rights := writeRights
		if s.ReadOnly {
			rights = readRights
		}
		rules = append(rules, landlock.PathAccess(rights, s.HostDir))
	}
	for _, dir := range r.Limits {
		rules = append(rules, landlock.PathAccess(limitRights, dir))
	}
	return "", landlock.V10.BestEffort().Restrict(rules...)
}

// dropCapabilities leaves root what it needs for folders of others: to serve one
// with its owner's rights, or to look through one that the machine has mounted.
func dropCapabilities(r sandbox.Reach) (note string, err error) {
	var keep uint64
	if os.Geteuid() == 0 {
		for _, s := range r.Shares {
			keep |= capabilitiesFor(s.HostDir, r.Served)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return "", err
	}
	for i := range data {
		have := data[i].Permitted & uint32(keep>>(32*i))
		data[i] = unix.CapUserData{Effective: have, Permitted: have}
	}
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&hdr)
	if errno != 0 {
		return "", errno
	}
	return "", nil
}

// capabilitiesFor is a set of bits.
func capabilitiesFor(dir string, served bool) uint64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Uid == 0 {
		return 0
	}
	if served {
		return 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	}
	return 1 << unix.CAP_DAC_READ_SEARCH
}

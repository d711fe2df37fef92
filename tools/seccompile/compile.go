// Package seccompile turns the system call profiles of init/seccomp into
// filters for the kernel, with libseccomp.
package seccompile

import (
	"fmt"
	"syscall"

	"github.com/berthos/berth/init/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

// Filters are the two programs of a class as raw struct sock_filter arrays,
// with libseccomp's readable form of each.
type Filters struct {
	Allow, Deny         []byte
	AllowText, DenyText string
}

// Files compiles every class for one architecture ("x86_64" or "arm64") and
// returns the contents of seccomp.Dir by file name.
func Files(arch string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, class := range seccomp.Classes() {
		f, err := Compile(class, arch)
		if err != nil {
			return nil, err
		}
		files[class.AllowFile()], files[class.DenyFile()] = f.Allow, f.Deny
	}
	return files, nil
}

// Compile builds the filters of one class for one architecture.
func Compile(class seccomp.Class, arch string) (Filters, error) {
	p, err := seccomp.For(class)
	if err != nil {
		return Filters{}, err
	}
	var f Filters
	enosys := libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))
	eperm := libseccomp.ActErrno.SetReturnCode(int16(syscall.EPERM))
	if f.Allow, f.AllowText, err = build(arch, enosys, libseccomp.ActAllow, p.Allow); err != nil {
		return Filters{}, fmt.Errorf("cannot compile the allow filter of class %s for %s: %w", class, arch, err)
	}
	if f.Deny, f.DenyText, err = build(arch, libseccomp.ActAllow, eperm, p.Deny); err != nil {
		return Filters{}, fmt.Errorf("cannot compile the deny filter of class %s for %s: %w", class, arch, err)
	}
	return f, nil
}

// build compiles one filter: matching calls get action, all others otherwise.
func build(arch string, otherwise, action libseccomp.ScmpAction, rules []seccomp.Rule) (bpf []byte, text string, err error) {
	target, err := archOf(arch)
	if err != nil {
		return nil, "", err
	}
	f, err := newFilter(target, otherwise)
	if err != nil {
		return nil, "", err
	}
	defer f.Release()
	for _, r := range rules {
		nr, ok := number(r.Call, target)
		if !ok {
			continue // the architecture does not have it
		}
		if err := f.AddRuleConditionalExact(nr, action, conditions(r)); err != nil {
			return nil, "", fmt.Errorf("rule %+v: %w", r, err)
		}
	}
	if bpf, err = export(f.ExportBPF); err != nil {
		return nil, "", err
	}
	pfc, err := export(f.ExportPFC)
	return bpf, string(pfc), err
}

// newFilter returns an empty filter for exactly one architecture, which kills
// calls of any other.
func newFilter(target libseccomp.ScmpArch, otherwise libseccomp.ScmpAction) (*libseccomp.ScmpFilter, error) {
	f, err := libseccomp.NewFilter(otherwise)
	if err != nil {
		return nil, err
	}
	native, err := libseccomp.GetNativeArch()
	if err == nil && native != target {
		if err = f.AddArch(target); err == nil {
			err = f.RemoveArch(native)
		}
	}
	if err == nil {
		err = f.SetBadArchAction(libseccomp.ActKillProcess)
	}
	if err == nil {
		err = f.SetOptimize(2) // a binary search over the numbers
	}
	if err != nil {
		f.Release()
		return nil, err
	}
	return f, nil
}

func archOf(name string) (libseccomp.ScmpArch, error) {
	switch name {
	case "x86_64":
		return libseccomp.ArchAMD64, nil
	case "arm64":
		return libseccomp.ArchARM64, nil
	}
	return libseccomp.ArchInvalid, fmt.Errorf("architecture %q: there are x86_64 and arm64", name)
}

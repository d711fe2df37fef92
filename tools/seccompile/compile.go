// Package seccompile turns the system call profiles of init/seccomp into
// filters for the kernel, with libseccomp.
package seccompile

import (
	"fmt"
	"syscall"

	"github.com/berthos/berth/init/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

// Filter is one program: the kernel's array of struct sock_filter, and what
// libseccomp prints for people.
type Filter struct {
	BPF  []byte
	Text string
}

// Files compiles every filter for one architecture ("x86_64" or "arm64") and
// returns the contents of seccomp.Dir by file name.
func Files(arch string) (map[string][]byte, error) {
	filters, err := Compile(arch)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, f := range filters {
		files[name] = f.BPF
	}
	return files, nil
}

// Compile compiles every filter for one architecture, by file name.
func Compile(arch string) (map[string]Filter, error) {
	enosys := libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))
	eperm := libseccomp.ActErrno.SetReturnCode(int16(syscall.EPERM))
	filters := map[string]Filter{}
	add := func(name string, otherwise, action libseccomp.ScmpAction, rules []seccomp.Rule) (err error) {
		if filters[name], err = build(arch, otherwise, action, rules); err != nil {
			err = fmt.Errorf("cannot compile seccomp filter %s for %s: %w", name, arch, err)
		}
		return err
	}
	for _, class := range seccomp.Classes() {
		p, err := seccomp.For(class)
		if err != nil {
			return nil, err
		}
		if err := add(class.AllowFile(), enosys, libseccomp.ActAllow, p.Allow); err != nil {
			return nil, err
		}
		if err := add(class.DenyFile(), libseccomp.ActAllow, eperm, p.Deny); err != nil {
			return nil, err
		}
	}
	return filters, add(seccomp.NoUnixFile, libseccomp.ActAllow, eperm, seccomp.NoUnix())
}

// build compiles one filter: matching calls get action, all others otherwise.
func build(arch string, otherwise, action libseccomp.ScmpAction, rules []seccomp.Rule) (Filter, error) {
	target, err := archOf(arch)
	if err != nil {
		return Filter{}, err
	}
	f, err := newFilter(target, otherwise)
	if err != nil {
		return Filter{}, err
	}
	defer f.Release()
	for _, r := range rules {
		nr, ok := number(r.Call, target)
		if !ok {
			continue // the architecture does not have it
		}
		if err := f.AddRuleConditionalExact(nr, action, conditions(r)); err != nil {
			return Filter{}, fmt.Errorf("rule %+v: %w", r, err)
		}
	}
	bpf, err := export(f.ExportBPF)
	if err != nil {
		return Filter{}, err
	}
	text, err := export(f.ExportPFC)
	return Filter{bpf, string(text)}, err
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

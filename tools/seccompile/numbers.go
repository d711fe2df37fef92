package seccompile

import (
	"os"

	"github.com/berthos/berth/init/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

// number returns what libseccomp wants for a call in a filter for target: the
// number on the machine that compiles. ok is false if target lacks the call.
//
// Recent calls go by number, which libseccomp takes for its own architecture
// only. Filters for arm64 leave them out, wherever they are compiled: they get
// ENOSYS there, as on an older kernel.
func number(call string, target libseccomp.ScmpArch) (nr libseccomp.ScmpSyscall, ok bool) {
	if n, recent := seccomp.Recent()[call]; recent {
		return libseccomp.ScmpSyscall(n), target == libseccomp.ArchAMD64
	}
	there, err := libseccomp.GetSyscallFromNameByArch(call, target)
	if err != nil || there < 0 { // negative: libseccomp's stand-in for "not there"
		return 0, false
	}
	here, err := libseccomp.GetSyscallFromName(call)
	return here, err == nil
}

// conditions translates the conditions of one rule.
func conditions(r seccomp.Rule) (conds []libseccomp.ScmpCondition) {
	for _, c := range r.Conds {
		if c.Not {
			conds = append(conds, libseccomp.ScmpCondition{Argument: c.Arg, Op: libseccomp.CompareNotEqual, Operand1: c.Value})
			continue
		}
		conds = append(conds, libseccomp.ScmpCondition{Argument: c.Arg, Op: libseccomp.CompareMaskedEqual, Operand1: c.Mask, Operand2: c.Value})
	}
	return conds
}

// export returns what one of libseccomp's export functions writes to a file.
// Its in-memory export needs a newer libseccomp than Debian 12 has.
func export(write func(*os.File) error) ([]byte, error) {
	f, err := os.CreateTemp("", "seccompile-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := write(f); err != nil {
		return nil, err
	}
	return os.ReadFile(f.Name())
}

package syscalls

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/seccomp"
)

func TestName(t *testing.T) {
	for _, c := range []struct {
		arch   string
		number int
		want   string
	}{
		{"x86_64", 0, "read"}, {"x86_64", 272, "unshare"}, {"x86_64", 257, "openat"}, {"x86_64", 452, "fchmodat2"}, {"x86_64", 321, "bpf"},
		{"aarch64", 97, "unshare"}, {"aarch64", 56, "openat"}, {"aarch64", 280, "bpf"},
		{"x86_64", 9999, "system call 9999"}, {"riscv64", 97, "system call 97"},
	} {
		if got := Name(c.arch, c.number); got != c.want {
			t.Errorf("Name(%s, %d) = %s, want %s", c.arch, c.number, got, c.want)
		}
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for number, want := range map[int]string{unix.SYS_MOUNT: "mount", unix.SYS_KEYCTL: "keyctl", unix.SYS_PTRACE: "ptrace", unix.SYS_LANDLOCK_RESTRICT_SELF: "landlock_restrict_self"} {
		if got := Name(arch, number); got != want {
			t.Errorf("%d is %s here, want %s", number, got, want)
		}
	}
}

// TestEveryDangerousCallHasAName: what a filter refuses on the record is shown
// by name. Some exist on one architecture only.
func TestEveryDangerousCallHasAName(t *testing.T) {
	known := map[string]bool{}
	for _, table := range []map[int]string{x8664, aarch64} {
		for _, name := range table {
			known[name] = true
		}
	}
	for _, class := range seccomp.Classes() {
		p, err := seccomp.For(class)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Deny {
			if !known[r.Call] {
				t.Errorf("profile %s refuses %s, which has no name", class, r.Call)
			}
		}
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		op, name string
		want     bool
	}{
		{"unshare", "unshare", true}, {"open", "openat", true}, {"chmod", "fchmodat2", true}, {"fork/exec", "clone3", true},
		{"unshare", "setns", false}, {"open", "chmod", false}, {"", "", false}, {"mount", "umount2", false},
	} {
		if got := Same(c.op, c.name); got != c.want {
			t.Errorf("Same(%q, %q) = %v", c.op, c.name, got)
		}
	}
	for _, family := range families {
		if len(strings.Fields(family)) < 2 {
			t.Errorf("family %q", family)
		}
	}
}

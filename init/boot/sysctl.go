package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// sysctl is one setting of the guest's kernel. One that is not required may be
// missing, which means that the kernel was built without what it restricts.
type sysctl struct {
	key, value string
	required   bool
}

// sysctls closes what Landlock and seccomp leave open, and what only widens the
// attack surface. Those of a network namespace hold for PID 1's own; the
// enforcer sets them again in each app's.
func sysctls() []sysctl {
	return []sysctl{
		{"kernel/yama/ptrace_scope", "3", true}, // nobody attaches to anything, and this stays
		{"kernel/kptr_restrict", "2", true},
		{"kernel/dmesg_restrict", "1", true},
		{"kernel/randomize_va_space", "2", true},
		{"kernel/panic", "-1", true}, // a dead guest ends at once, not in a hang
		{"kernel/panic_on_oops", "1", true},
		{"vm/memfd_noexec", "2", true}, // no executable file outside what policies name
		{"fs/protected_symlinks", "1", true},
		{"fs/protected_hardlinks", "1", true},
		{"fs/protected_fifos", "2", true},
		{"fs/protected_regular", "2", true},
		{"net/ipv4/tcp_fastopen", "0", true}, // connects without connect(2)
		{"net/mptcp/enabled", "0", false},    // ignores Landlock's TCP rules
		{"user/max_user_namespaces", "0", false},
		{"kernel/unprivileged_bpf_disabled", "1", false},
		{"net/core/bpf_jit_harden", "2", false},
		{"kernel/io_uring_disabled", "2", false},
		{"kernel/perf_event_paranoid", "3", false},
		{"kernel/kexec_load_disabled", "1", false},
		{"kernel/modules_disabled", "1", false},
		{"kernel/sysrq", "0", false},
		{"kernel/core_pattern", "|/bin/false", false},
		{"fs/suid_dumpable", "0", false},
		{"vm/unprivileged_userfaultfd", "0", false},
		{"vm/mmap_min_addr", "65536", false},
		{"dev/tty/ldisc_autoload", "0", false},
		{"dev/tty/legacy_tiocsti", "0", false},

		// What the kernel bounds for a user or for the machine, one app could take
		// from another. All of it is memory that the app's own limit counts.
		{"fs/inotify/max_user_instances", "1048576", false},
		{"fs/inotify/max_user_watches", "1048576", false},
		{"fs/epoll/max_user_watches", "16777216", false},
		{"fs/pipe-user-pages-soft", "0", false},
		{"fs/file-max", "1048576", false},
	}
}

// sysctls sets the table and reads every value back.
func (p *pid1) sysctls(context.Context) error {
	var errs []error
	for _, s := range sysctls() {
		if err := p.sysctl(s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *pid1) sysctl(s sysctl) error {
	name := strings.ReplaceAll(s.key, "/", ".")
	got, err := p.sys.Sysctl("/proc/sys/"+s.key, s.value)
	if errors.Is(err, fs.ErrNotExist) && !s.required {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot set sysctl %s to %q: %w", name, s.value, err)
	}
	if got != s.value {
		return fmt.Errorf("cannot set sysctl %s to %q: it stays %q", name, s.value, got)
	}
	return nil
}

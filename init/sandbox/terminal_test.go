package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/init/policy"
)

// TestTerminal is about terminal:attach:*. Where two answers are given, they
// are those of kernels with and without TIOCSTI.
func TestTerminal(t *testing.T) {
	const sti, console = "ioctl:5412 ioctl:100005412 ioctl:ffffffff00005412", "ioctl:541c ioctl:10000541c"
	actions := strings.Fields("nodes list make many talk ioctl:5413 " + sti + " " + console)
	all := "nodes=tty,ptmx,pts,pts/ptmx,. list=1 make=EPERM|EACCES "
	works := all + "many=64,ENOSPC talk=heard-hello-true-true ioctl:5413=ok "
	closed := "nodes=. list=ENOENT make=EPERM|EACCES many=0,ENOENT talk=ENOENT "
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		for _, c := range []struct {
			granted      bool
			ablate, want string
		}{
			{true, "", works + each(sti, "EPERM") + each(console, "EPERM")},
			{true, "seccomp", works + each(sti, "ok|EIO") + each(console, "ENOTTY|EPERM|EINVAL")},
			{false, "", closed},
			// Landlock alone, then seccomp alone: the terminal is there and does
			// not become anybody's. Without either it works.
			{false, "mount-terminal", "list=EACCES many=0,EACCES talk=EACCES "},
			{false, "mount-terminal landlock", all + "many=64,ENOSPC talk=EPERM "},
			{false, "mount-terminal landlock seccomp", works},
		} {
			j := b.job(profile, append([]string{"-terminal"}, actions...)).withCgroup(t).with(t, func(p *policy.Policy) {
				p.Terminal = c.granted
				p.Rights = p.Rights.WithClass()
			})
			j.Spec.Ablate = strings.Fields(c.ablate)
			o := start(t, j)
			got := answers(o)
			for _, pair := range strings.Fields(c.want) {
				action, want, _ := strings.Cut(pair, "=")
				if !slices.Contains(strings.Split(want, "|"), got[action]) {
					t.Errorf("%s granted %v without %q: %s: %q, want %s (%+v)", profile, c.granted, c.ablate, action, got[action], want, o.failed())
				}
			}
		}
	}
}

// answers reads what the attack app prints of its actions.
func answers(o outcome) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(o.Stdout) {
		action, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[action] = answer
	}
	return got
}

func each(actions, want string) string {
	var all string
	for _, a := range strings.Fields(actions) {
		all += a + "=" + want + " "
	}
	return all
}

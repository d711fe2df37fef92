package cgroup

import (
	"strings"
	"testing"
)

func TestDelegated(t *testing.T) {
	const user = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
	cases := []struct{ name, own, mine, want string }{
		{"root", "/sys/fs/cgroup/init.scope", "/", "/sys/fs/cgroup"},
		{"below the user's manager", user + "/app.slice/term.scope", user, user + "/app.slice"},
		{"directly in the user's manager", user + "/term.scope", user, user},
		{"only the own group", user + "/app.slice/term.scope", user + "/app.slice/term.scope", "/sys/fs/cgroup"},
		{"a login session", "/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope", user, "/sys/fs/cgroup"},
		{"at the root", "/sys/fs/cgroup", user, "/sys/fs/cgroup"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			mine := func(dir string) bool {
				return c.mine == "/" || dir == c.mine || strings.HasPrefix(dir, c.mine+"/")
			}
			if got := delegated("/sys/fs/cgroup", c.own, mine); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

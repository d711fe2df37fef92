package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthos/berth/init/cgroup"
	"github.com/berthos/berth/init/policy"
)

// group is the cgroup of one run of an app.
type group struct {
	procs  []*os.File  // cgroup.procs, for the enforcer; remove closes them
	oom    func() bool // whether the kernel killed for its memory limit
	remove func() error
}

// appCgroup makes an app's cgroup in a VM, where every limit can be had: one
// that is missing is a failure.
func appCgroup(app string, limits policy.Limits) (*group, error) {
	g, err := cgroup.Create(app, limits)
	if err != nil {
		return nil, err
	}
	if len(g.Missing) > 0 {
		return nil, errors.Join(errors.New(strings.Join(g.Missing, "; ")), g.Remove())
	}
	dirs := g.Dirs()
	return &group{procs: g.Procs(), oom: func() bool { return oomKilled(dirs) }, remove: g.Remove}, nil
}

// oomKilled reads the kernel's count of processes killed for a memory limit.
func oomKilled(dirs []string) bool {
	for _, dir := range dirs {
		raw, err := os.ReadFile(filepath.Join(dir, "memory.events"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			if n, ok := strings.CutPrefix(line, "oom_kill "); ok && strings.TrimSpace(n) != "0" {
				return true
			}
		}
	}
	return false
}

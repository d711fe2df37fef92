package boot

import (
	"errors"
	"os"
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
	return &group{procs: g.Procs(), oom: func() bool { return cgroup.OOMKills(dirs) > 0 }, remove: g.Remove}, nil
}

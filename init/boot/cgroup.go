package boot

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/cgroup"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// appGroup is the cgroup that the processes of an app share.
type appGroup struct {
	procs  func(worker string) []*os.File // cgroup.procs, for the enforcer of one
	hits   func(worker string) cgroup.Hits
	remove func() error
}

// group is a process's membership of it, for one run.
type group struct {
	procs []*os.File
	hits  func() cgroup.Hits // since the run began
	leave func() error
}

// makeGroup makes an app's cgroup in a VM, where every limit can be had: one
// that is missing is a failure.
func makeGroup(app string, limits policy.Limits, processes []string) (*appGroup, error) {
	g, err := cgroup.Create(app, limits)
	if err != nil {
		return nil, err
	}
	if err := g.Divide(processes); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	if len(g.Missing) > 0 {
		return nil, errors.Join(errors.New(strings.Join(g.Missing, "; ")), g.Remove())
	}
	return &appGroup{procs: g.ProcsOf, hits: g.HitsOf, remove: g.Remove}, nil
}

// groups are the cgroups of a VM's apps. One is made with the first process of
// its app and removed with the last.
type groups struct {
	sys *System

	mu    sync.Mutex // guards what follows
	byApp map[string]*sharedGroup
}

// sharedGroup stays in the register once it is there: its lock has to outlive
// the group.
type sharedGroup struct {
	mu    sync.Mutex // guards what follows, and is held while the group is made or removed
	group *appGroup
	users int
}

func newGroups(sys *System) *groups { return &groups{sys: sys, byApp: map[string]*sharedGroup{}} }

func (gs *groups) of(app string) *sharedGroup {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	s := gs.byApp[app]
	if s == nil {
		s = &sharedGroup{}
		gs.byApp[app] = s
	}
	return s
}

// join makes a process, for one run, a member of its app's group.
func (gs *groups) join(p policy.Policy, worker string) (*group, error) {
	s := gs.of(p.App)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		g, err := gs.sys.Cgroup(p.App, p.Limits, p.Processes())
		if err != nil {
			return nil, err
		}
		s.group = g
	}
	s.users++
	g := s.group
	before := g.hits(worker)
	return &group{procs: g.procs(worker), hits: func() cgroup.Hits { return g.hits(worker).Since(before) }, leave: s.leave}, nil
}

// leave must be called once for each join. The processes of a run are gone by
// then, as its pid namespace is.
func (s *sharedGroup) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users > 0 {
		return nil
	}
	g := s.group
	s.group = nil
	return g.remove()
}

// cgroup returns the group for a run: made here in a VM, inherited on a native
// machine.
func (l *launcher) cgroup() (*group, error) {
	if l.p.profile == sandbox.ProfileVM {
		return l.p.groups.join(l.policy, l.start.Worker)
	}
	g := &group{hits: func() cgroup.Hits { return cgroup.Hits{} }}
	g.leave = func() error {
		for _, f := range g.procs {
			_ = f.Close()
		}
		return nil
	}
	for _, c := range l.p.native.Cgroups {
		if c.App != l.name {
			continue
		}
		for _, fd := range c.FDs {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("cannot use descriptor %d: %w", fd, err), g.leave())
			}
			g.procs = append(g.procs, os.NewFile(uintptr(dup), "cgroup.procs"))
		}
	}
	return g, nil
}

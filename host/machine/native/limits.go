package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/init/boot"
	"github.com/berthos/berth/init/cgroup"
	"github.com/berthos/berth/init/policy"
)

// groups are the cgroups of a sandbox's apps, made by the host, which alone may.
type groups struct {
	byApp  map[string]*cgroup.Group
	files  []*os.File // cgroup.procs, for /sbin/init to inherit
	config string     // its second argument, which says whose they are
	notes  []string

	mu     sync.Mutex               // guards what follows
	hits   map[string]cgroup.Hits   // of each process, as last counted
	limits map[string]policy.Limits // of each app
}

// firstGroupFD is the first descriptor after the link in /sbin/init.
const firstGroupFD = 4

// makeGroups makes a cgroup for each app. An ordinary user may have none, which
// is noted; for root it is required.
func (m *Machine) makeGroups(c machine.Config) (*groups, error) {
	g := &groups{byApp: map[string]*cgroup.Group{}, hits: map[string]cgroup.Hits{}, limits: map[string]policy.Limits{}}
	config := boot.NativeConfig{Cgroups: []boot.NativeCgroup{}}
	var dirs []string
	for _, app := range c.Apps {
		group, err := cgroup.Create("berth-"+c.Dir.ID+"-"+app.Name, app.Limits)
		if err != nil && m.root {
			g.remove()
			return nil, hint.Errorf("mount /sys/fs/cgroup, or use --machine qemu", "cannot limit app %q: %w", app.Name, err)
		}
		if err != nil {
			g.notes = append(g.notes, fmt.Sprintf("app %q has no cgroup, as this user may make none here; under systemd, `systemd-run --user --scope berth ...` may", app.Name))
			continue
		}
		g.byApp[app.Name], g.limits[app.Name] = group, app.Limits
		if err := group.Divide(app.Processes); err != nil {
			g.remove()
			return nil, err
		}
		dirs = append(dirs, group.Dirs()...)
		if err := c.Dir.Record(leftovers(dirs)); err != nil {
			g.remove()
			return nil, err
		}
		for _, missing := range group.Missing {
			g.notes = append(g.notes, fmt.Sprintf("app %q: %s", app.Name, missing))
		}
		for _, process := range app.Processes {
			own := boot.NativeCgroup{App: process}
			for _, f := range group.ProcsOf(process) {
				own.FDs = append(own.FDs, firstGroupFD+len(g.files))
				g.files = append(g.files, f)
			}
			config.Cgroups = append(config.Cgroups, own)
		}
	}
	raw, err := json.Marshal(config)
	g.config = string(raw)
	return g, err
}

// limit changes what an app may use, if it has a group.
func (g *groups) limit(app string, l policy.Limits) error {
	group := g.byApp[app]
	if group == nil {
		return nil
	}
	g.mu.Lock()
	g.limits[app] = l
	g.mu.Unlock()
	return group.Limit(l)
}

// limitHit says which limit was hit since it was last asked about a process.
func (g *groups) limitHit(app, process string, killed bool) string {
	group := g.byApp[app]
	if group == nil {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.hits[process]
	g.hits[process] = group.HitsOf(process)
	return g.hits[process].Since(before).Text(g.limits[app], killed)
}

// dirs are the folders of all groups.
func (g *groups) dirs() (all []string) {
	for _, group := range g.byApp {
		all = append(all, group.Dirs()...)
	}
	return all
}

// remove removes the groups of a sandbox that was not started.
func (g *groups) remove() error {
	var errs []error
	for _, group := range g.byApp {
		errs = append(errs, group.Remove())
	}
	return errors.Join(errs...)
}

// close forgets the groups: the keeper removes them.
func (g *groups) close() { closeAll(g.files) }

// Package cgroup owns the control group of one app: its limits on memory,
// processes and CPU time, on cgroup v2 and on v1 or hybrid hierarchies.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthos/berth/init/policy"
	"golang.org/x/sys/unix"
)

// Group is one app's control group: one folder in the unified hierarchy, or
// one in each hierarchy of v1 that it needs.
type Group struct {
	// Missing names the limits that could not be had, with the reason: a
	// sentence each. Whether to go on without is the caller's decision.
	Missing []string

	dirs  []string
	procs []*os.File
	parts map[string][]part // of the processes that it was divided among
}

// setting is one file of a cgroup folder.
type setting struct {
	file     string
	value    string
	optional bool // kernels without swap accounting or OOM groups lack the file
}

// controller is one resource and how each version limits it.
type controller struct {
	name   string
	limits string // for people
	v2, v1 []setting
}

// cpuPeriod is the period of CPU quotas in microseconds.
const cpuPeriod = 100_000

// controllers returns what l comes to. A limit that is not positive is none.
func controllers(l policy.Limits) (list []controller) {
	if l.MemoryMB > 0 {
		bytes := strconv.FormatInt(int64(l.MemoryMB)<<20, 10)
		list = append(list, controller{"memory", "memory",
			[]setting{{"memory.max", bytes, false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}},
			[]setting{{"memory.limit_in_bytes", bytes, false}, {"memory.memsw.limit_in_bytes", bytes, true}, {"memory.kmem.tcp.limit_in_bytes", bytes, true}}})
	}
	if l.Pids > 0 {
		pids := []setting{{"pids.max", strconv.Itoa(l.Pids), false}}
		list = append(list, controller{"pids", "the number of processes", pids, pids})
	}
	if l.CPUMilli > 0 {
		quota := strconv.Itoa(max(1000, l.CPUMilli*(cpuPeriod/1000))) // the kernel's least is 1 ms
		period := strconv.Itoa(cpuPeriod)
		list = append(list, controller{"cpu", "CPU time",
			[]setting{{"cpu.max", quota + " " + period, false}},
			[]setting{{"cpu.cfs_period_us", period, false}, {"cpu.cfs_quota_us", quota, false}}})
	}
	return list
}

// Create makes the group name with the limits l, in the hierarchies that are
// mounted. It fails only if no hierarchy can be had at all; limits that can
// not are in Missing.
func Create(name string, l policy.Limits) (*Group, error) {
	h, err := find("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return h.create(name, l)
}

func (h hierarchies) create(name string, l policy.Limits) (*Group, error) {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return nil, fmt.Errorf("cannot create cgroup %q: not a plain name", name)
	}
	g := &Group{}
	for _, c := range controllers(l) {
		if err := g.limit(h, name, c); err != nil {
			g.Missing = append(g.Missing, fmt.Sprintf("%s is not limited: %v", c.limits, err))
		}
	}
	if len(g.dirs) == 0 {
		g.Remove()
		return nil, fmt.Errorf("cannot create cgroup %s: %s", name, strings.Join(g.Missing, "; "))
	}
	for _, dir := range g.dirs {
		f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			g.Remove()
			return nil, fmt.Errorf("cannot open cgroup %s: %w", name, err)
		}
		g.procs = append(g.procs, f)
	}
	return g, nil
}

// limit applies one controller: in v1 if a hierarchy of v1 has it, else in v2.
func (g *Group) limit(h hierarchies, name string, c controller) error {
	dir, settings := filepath.Join(h.v1[c.name], name), c.v1
	if h.v1[c.name] == "" {
		if h.v2 == "" {
			return errors.New("no cgroup hierarchy has its controller")
		}
		if err := h.enable(c.name); err != nil {
			return err
		}
		dir, settings = filepath.Join(h.v2, name), c.v2
	}
	if err := g.folder(dir); err != nil {
		return err
	}
	return apply(dir, settings)
}

func apply(dir string, settings []setting) error {
	for _, s := range settings {
		err := put(filepath.Join(dir, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// Limit changes the limits of a group that exists. What it limits already can
// be changed; Missing stays as it is. It opens nothing but files of the group.
func (g *Group) Limit(l policy.Limits) error {
	for _, c := range controllers(l) {
		for _, dir := range g.dirs {
			for _, settings := range [][]setting{c.v2, c.v1} {
				if g.parts != nil { // each ends alone
					settings = slices.DeleteFunc(settings, func(s setting) bool { return s.file == "memory.oom.group" })
				}
				if err := change(dir, settings); err != nil {
					return fmt.Errorf("cannot change limit of %s: %w", c.limits, err)
				}
			}
		}
	}
	return nil
}

// change applies settings where they are: another hierarchy has other files, and
// so has a limit that could not be had. Memory with swap must never be below
// memory alone, so that one order serves to lower both and the other to raise them.
func change(dir string, settings []setting) error {
	if _, err := os.Stat(filepath.Join(dir, settings[0].file)); err != nil {
		return nil
	}
	if apply(dir, settings) == nil {
		return nil
	}
	settings = slices.Clone(settings)
	slices.Reverse(settings)
	return apply(dir, settings)
}

// folder makes one cgroup folder, unless an earlier controller did.
func (g *Group) folder(dir string) error {
	for _, have := range g.dirs {
		if have == dir {
			return nil
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	g.dirs = append(g.dirs, dir)
	return nil
}

// Procs returns the writable cgroup.procs files, to be handed to the enforcer.
// They belong to the group and are closed by Remove.
func (g *Group) Procs() []*os.File { return g.procs }

// Dirs returns the group's folders, those of parts first, so that another process
// can remove them (RemoveDirs) should this one die.
func (g *Group) Dirs() []string { return append(g.partDirs(), g.dirs...) }

// RemoveDirs kills what is left in a group's folders and removes those that are
// still there.
func RemoveDirs(dirs []string) error {
	g := &Group{}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			g.dirs = append(g.dirs, dir)
		}
	}
	return g.Remove()
}

// Kill ends every process of the group. It does not wait for their end.
func (g *Group) Kill() error {
	var errs []error
	for _, dir := range g.dirs { // of v2: with all folders below it
		err := put(filepath.Join(dir, "cgroup.kill"), "1")
		if errors.Is(err, os.ErrNotExist) { // v1 has no such file
			err = killAll(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// killAll signals every process of a folder until there is none that was not
// signalled before. New ones can appear meanwhile, but not without end: they
// are children of what is being killed.
func killAll(dir string) error {
	signalled := map[string]bool{}
	for {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		found := false
		for _, p := range strings.Fields(string(raw)) {
			pid, err := strconv.Atoi(p)
			if err != nil || pid <= 0 || signalled[p] {
				continue
			}
			signalled[p], found = true, true
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("cannot kill process %d of %s: %w", pid, dir, err)
			}
		}
		if !found {
			return nil
		}
	}
}

// Remove kills what is left, closes the files and removes the folders.
func (g *Group) Remove() error {
	errs := []error{g.Kill()}
	for _, f := range g.procs {
		errs = append(errs, f.Close())
	}
	for _, parts := range g.parts {
		for _, p := range parts {
			if p.dir != "" {
				errs = append(errs, p.procs.Close())
			}
		}
	}
	for _, dir := range g.Dirs() {
		errs = append(errs, remove(dir))
	}
	g.procs, g.dirs, g.parts = nil, nil, nil
	return errors.Join(errs...)
}

// remove waits up to a second for the killed processes: a folder stays busy
// until the kernel has unlinked the last, and v1 tells nobody when.
func remove(dir string) error {
	var err error
	for range 100 {
		if err = unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove cgroup %s: %w", dir, err)
	}
	return nil
}

// put writes a value into a file that the kernel made. Creating one, as
// os.WriteFile would, is refused with an errno that hides that it is missing.
func put(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

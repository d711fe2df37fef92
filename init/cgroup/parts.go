package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// part is the share of one process, with its descendants, in the group of an
// app that has several.
type part struct {
	dir   string // "": this hierarchy keeps all together
	procs *os.File
}

// Divide gives each of an app's processes a folder of its own below the one
// whose limit they share, where the hierarchy can end one part alone (the
// memory controller of v2): what the kernel kills for their memory is then one
// process with its descendants, not all of them. In other hierarchies it kills
// single tasks anyway, and they stay together.
func (g *Group) Divide(processes []string) error {
	if len(processes) < 2 {
		return nil
	}
	g.parts = map[string][]part{}
	for n, dir := range g.dirs {
		divided, err := divisible(dir)
		if err != nil {
			return fmt.Errorf("cannot divide cgroup %s: %w", dir, err)
		}
		for i, name := range processes {
			p := part{procs: g.procs[n]}
			if divided {
				if p, err = newPart(filepath.Join(dir, "process"+strconv.Itoa(i))); err != nil {
					return fmt.Errorf("cannot divide cgroup %s: %w", dir, err)
				}
			}
			g.parts[name] = append(g.parts[name], p)
		}
	}
	return nil
}

// divisible prepares a folder of v2 with the memory controller.
func divisible(dir string) (bool, error) {
	group := filepath.Join(dir, "memory.oom.group")
	if _, err := os.Stat(group); errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if err := put(group, "0"); err != nil {
		return false, err
	}
	return true, put(filepath.Join(dir, "cgroup.subtree_control"), "+memory")
}

func newPart(dir string) (part, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return part{}, err
	}
	if err := put(filepath.Join(dir, "memory.oom.group"), "1"); err != nil {
		return part{dir: dir}, errors.Join(err, os.Remove(dir))
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return part{dir: dir}, errors.Join(err, os.Remove(dir))
	}
	return part{dir, f}, nil
}

// partDirs are the folders of all parts.
func (g *Group) partDirs() (dirs []string) {
	for _, parts := range g.parts {
		for _, p := range parts {
			if p.dir != "" {
				dirs = append(dirs, p.dir)
			}
		}
	}
	return dirs
}

// ProcsOf is Procs for one of the processes that the group was divided among.
func (g *Group) ProcsOf(process string) []*os.File {
	parts, divided := g.parts[process]
	if !divided {
		return g.procs
	}
	var files []*os.File
	for _, p := range parts {
		files = append(files, p.procs)
	}
	return files
}

// HitsOf is how often a limit was hit: by one of the processes that the group
// was divided among, as far as the kernel counts for each.
func (g *Group) HitsOf(process string) Hits {
	own := []string{}
	for _, p := range g.parts[process] {
		if p.dir != "" {
			own = append(own, p.dir)
		}
	}
	h := count(g.dirs)
	if len(own) > 0 {
		h.Memory = count(own).Memory
	}
	return h
}

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hierarchies are the folders in which groups are made.
type hierarchies struct {
	v1 map[string]string // by controller: the caller's own folder, whose limits stay in force
	v2 string            // of the unified hierarchy: its root, or what was delegated to an ordinary user; "" if none
}

// find reads where cgroup hierarchies are mounted and where the caller is.
func find(mountinfo, membership string) (hierarchies, error) {
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return hierarchies{}, fmt.Errorf("cannot find cgroups: %w", err)
	}
	own, err := os.ReadFile(membership)
	if err != nil {
		return hierarchies{}, fmt.Errorf("cannot find own cgroup: %w", err)
	}
	h := hierarchies{v1: map[string]string{}}
	paths := ownPaths(string(own))
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		switch {
		case !ok:
		case m.kind == "cgroup2":
			h.v2 = delegated(m.point, m.folder(paths[""]), writable)
		case m.kind == "cgroup":
			for _, name := range []string{"memory", "pids", "cpu"} {
				if slices.Contains(m.options, name) {
					h.v1[name] = m.folder(paths[name])
				}
			}
		}
	}
	if h.v2 == "" && len(h.v1) == 0 {
		return h, errors.New("cannot find cgroups: no hierarchy is mounted")
	}
	return h, nil
}

// mount is one line of mountinfo: the part of the hierarchy that is visible,
// where, and with which options of the file system.
type mount struct {
	root, point, kind string
	options           []string
}

func parseMount(line string) (mount, bool) {
	left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !ok || len(l) < 6 || len(r) < 3 {
		return mount{}, false
	}
	return mount{root: l[3], point: l[4], kind: r[0], options: strings.Split(r[2], ",")}, true
}

// folder returns where the cgroup with the given path in its hierarchy is
// visible, or the mount point if it is not below what is mounted.
func (m mount) folder(own string) string {
	rel, err := filepath.Rel(m.root, own)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return m.point
	}
	return filepath.Join(m.point, rel)
}

// ownPaths reads /proc/self/cgroup: the path in each controller's hierarchy.
func ownPaths(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			paths[c] = f[2]
		}
	}
	return paths
}

// enable makes a controller of the unified hierarchy usable in groups below
// its root.
func (h hierarchies) enable(controller string) error {
	have, err := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(have)), controller) {
		return fmt.Errorf("the cgroup hierarchy at %s has no controller %s", h.v2, controller)
	}
	return put(filepath.Join(h.v2, "cgroup.subtree_control"), "+"+controller)
}

// delegated returns the folder of the unified hierarchy in which the caller may
// make groups: the root, or for an ordinary user the nearest one above its own
// that was given to it (systemd gives a user that of user@UID.service). Its own
// would not do: a group with processes cannot have controlled groups below it.
func delegated(point, own string, writable func(string) bool) string {
	if writable(point) {
		return point
	}
	for dir := filepath.Dir(own); len(dir) > len(point); dir = filepath.Dir(dir) {
		if writable(dir) {
			return dir
		}
	}
	return point // where the attempt fails, and says why
}

// writable reports whether the caller may make groups in dir and move its own
// processes there.
func writable(dir string) bool {
	for _, name := range []string{dir, filepath.Join(dir, "cgroup.procs"), filepath.Join(dir, "cgroup.subtree_control")} {
		if unix.Access(name, unix.W_OK) != nil {
			return false
		}
	}
	return true
}

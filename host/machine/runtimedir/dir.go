package runtimedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/cgroup"
)

// Names in a sandbox's folder.
const (
	lockName      = "lock"
	leftoversName = "leftovers.json"
)

// Dir is the folder of one sandbox.
type Dir struct {
	ID   string
	Path string
	lock *os.File
}

// Leftovers are things outside of the folder that must go with it.
type Leftovers struct {
	Cgroups []string `json:"cgroups"` // folders
}

// Record notes leftovers before they are made, for whoever has to remove them.
func (d *Dir) Record(l Leftovers) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("cannot record leftovers: %w", err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, leftoversName), raw, 0o600); err != nil {
		return fmt.Errorf("cannot record leftovers: %w", err)
	}
	return nil
}

// Lock is the open lock: a process that inherits it keeps the sandbox alive.
func (d *Dir) Lock() *os.File { return d.lock }

// Release gives this process's hold on the lock up.
func (d *Dir) Release() { d.lock.Close() }

// Remove deletes the folder at path and what it has recorded. The caller knows
// that nothing of the sandbox runs any more, or wants it gone.
func Remove(path string) error {
	var l Leftovers
	raw, err := os.ReadFile(filepath.Join(path, leftoversName))
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot read leftovers of sandbox: %w", err)
	}
	if err := cgroup.RemoveDirs(l.Cgroups); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("cannot remove runtime folder of sandbox: %w", err)
	}
	return nil
}

// lock takes the lock at path, or fails at once if somebody has it. A folder
// that is being removed must not get a new lock: only its maker creates.
func lock(path string, create int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|create|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	return f, nil
}

// Discard removes the folder of a sandbox that was not started.
func (d *Dir) Discard() error {
	err := Remove(d.Path)
	d.Release()
	return err
}

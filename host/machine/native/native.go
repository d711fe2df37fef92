// Package native owns the machine without a VM: the guest's root file system and
// init in namespaces of the host's kernel.
package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/keeper"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// Job is the keeper's job that starts a native sandbox.
const Job = "native"

// Options configures the machine. The zero value is what berth uses.
type Options struct {
	Runtime *runtimedir.Root // nil: runtimedir.Open
	Unpack  bool             // copy the root file system even where it could be mounted
}

// Machine is the native machine, as root or as an ordinary user.
type Machine struct {
	o    Options
	root bool
}

// New returns the machine for whoever runs this process.
func New(o Options) *Machine { return &Machine{o: o, root: realRoot()} }

// realRoot reports whether this process is root of the initial user namespace
// and so has ids to give away.
func realRoot() bool {
	if os.Geteuid() != 0 {
		return false
	}
	raw, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(raw)), " ") == "0 0 4294967295"
}

// Name returns machine.Native.
func (m *Machine) Name() string { return machine.Native }

// Describe says as whom it runs.
func (m *Machine) Describe() string {
	if m.root {
		return "native (as root)"
	}
	return "native (as an ordinary user)"
}

// Profile says which steps the guest must have done.
func (m *Machine) Profile() sandbox.Profile {
	if m.root {
		return sandbox.ProfileNativeRoot
	}
	return sandbox.ProfileNativeUser
}

// Boundary is the host's kernel.
func (m *Machine) Boundary() machine.Boundary { return machine.BoundaryKernel }

// ShareSource says that the stub mounts shares.
func (m *Machine) ShareSource() string { return machine.SourceBind }

// Landlock promises nothing: the kernel is the host's.
func (m *Machine) Landlock(*image.Image) (abi, errata int) { return 0, 0 }

// Start makes the namespaces and the mount tree and executes /sbin/init.
func (m *Machine) Start(ctx context.Context, c machine.Config) (machine.Instance, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	art, err := c.Image.Seal(false)
	if err != nil {
		return nil, err
	}
	defer art.Close()
	groups, err := m.makeGroups(c)
	if err != nil {
		return nil, err
	}
	defer groups.close()
	p, hold, err := m.plan(c, groups)
	if err != nil {
		return nil, errors.Join(err, groups.remove())
	}
	defer closeAll(hold)
	ours, theirs, err := keeper.SocketPair()
	if err != nil {
		return nil, errors.Join(err, groups.remove())
	}
	defer theirs.Close()
	k, err := keeper.Start(keeper.Spec{
		Job: Job, Plan: p, Dir: c.Dir.Path, Mounts: m.root,
		Files: append(append([]*os.File{theirs}, groups.files...), art.Root),
		Hold:  append(hold, c.Dir.Lock()),
	})
	if err != nil {
		ours.Close()
		return nil, m.explain(err)
	}
	c.Dir.Release()
	if err := ctx.Err(); err != nil {
		k.Kill()
		k.Wait()
		return nil, err
	}
	return &instance{Conn: ours, keeper: k, groups: groups}, nil
}

func (m *Machine) plan(c machine.Config, g *groups) (p plan, hold []*os.File, err error) {
	p = plan{Root: m.root, Stage: filepath.Join(c.Dir.Path, "stage"), Data: c.Image.Index.Root.DataSize, Unpack: m.o.Unpack, Pass: 1 + len(g.files)}
	for _, s := range c.Shares {
		ps := planShare{Name: s.Name, Dir: name(s.HostDir), ReadOnly: s.ReadOnly, Hide: names(s.Hide), Protect: names(s.Protect)}
		if err := ps.look(); err != nil {
			return p, nil, fmt.Errorf("cannot share %s: %w", s.HostDir, err)
		}
		p.Shares = append(p.Shares, ps)
	}
	if err := os.Mkdir(p.Stage, 0o700); err != nil {
		return p, nil, fmt.Errorf("cannot make the stage: %w", err)
	}
	p.Init = []string{string(m.Profile()), g.config}
	if !m.root {
		return p, nil, nil
	}
	rt := m.o.Runtime
	if rt == nil {
		if rt, err = runtimedir.Open(runtimedir.Search{}); err != nil {
			return p, nil, err
		}
	}
	ids, err := rt.TakeIDs()
	if err != nil {
		return p, nil, err
	}
	p.Base = ids.Base
	return p, []*os.File{ids.Lock()}, nil
}

// Prepare is the keeper's job: it stages the mounts if it may and returns the stub.
func Prepare(t keeper.Task) (*exec.Cmd, error) {
	p, err := parsePlan(t.Plan)
	if err != nil {
		return nil, err
	}
	image := t.Files[len(t.Files)-1]
	pass := t.Files[:len(t.Files)-1]
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP,
		Pdeathsig: syscall.SIGKILL,
	}
	if p.Root {
		t.AtEnd(func() { _ = unix.Unmount(p.Stage, unix.MNT_DETACH) })
		if err := stageAsRoot(p, image, t.Note); err != nil {
			return nil, err
		}
		attr.UidMappings, attr.GidMappings = rangeMap(p.Base), rangeMap(p.Base)
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{}
	} else {
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	planFile, err := keeper.MemFile("plan", raw)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"berth-native", StubArg, strconv.Itoa(3 + len(pass))},
		Env:         []string{},
		ExtraFiles:  append(append([]*os.File{}, pass...), t.Report, planFile, image),
		SysProcAttr: attr,
	}, nil
}

type instance struct {
	net.Conn
	keeper *keeper.Keeper
	groups *groups
}

func (i *instance) Link() net.Conn               { return i.Conn }
func (i *instance) BindPath(share string) string { return bindDir(share) }
func (i *instance) Notes() []string              { return slices.Concat(i.groups.notes, i.keeper.Notes()) }
func (i *instance) Kill()                        { i.keeper.Kill() }

// Limit changes an app's cgroup, if it has one.
func (i *instance) Limit(app string, l policy.Limits) error { return i.groups.limit(app, l) }

// LimitDirs are the folders of the apps' cgroups.
func (i *instance) LimitDirs() []string { return i.groups.dirs() }

// LimitHit asks the kernel.
func (i *instance) LimitHit(app, process string, killed bool) string {
	return i.groups.limitHit(app, process, killed)
}

// Wait says nothing for an init that exited as it was told to.
func (i *instance) Wait() machine.End {
	end := i.keeper.Wait()
	e := machine.End{Console: end.Console, Left: end.Left}
	if !end.OK {
		e.Reason = "init ended: " + end.Status
	}
	return e
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func leftovers(dirs []string) runtimedir.Leftovers { return runtimedir.Leftovers{Cgroups: dirs} }

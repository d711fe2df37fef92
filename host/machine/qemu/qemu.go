// Package qemu owns the machine that boots Berth's kernel in QEMU, with KVM
// where a probe has proved it, else emulated.
package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/keeper"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// Job is the keeper's job that starts QEMU.
const Job = "qemu"

// Options configures the machine.
type Options struct {
	Accel   Accel
	Runtime *runtimedir.Root // nil: runtimedir.Open
	// Monitor gives QEMU a monitor on this connection, and has the kernel panic
	// when it gets an NMI. Tests only: whoever holds the other end has the guest.
	Monitor *os.File
	// CountInstructions has the guest's counter advance by one for each of its
	// instructions, so that a boot can be measured without noise. Benches only:
	// the guest's clock then runs at the speed of its work. Needs TCG.
	CountInstructions bool
}

// Machine is the qemu machine.
type Machine struct{ o Options }

// New returns the machine.
func New(o Options) *Machine { return &Machine{o: o} }

// Accel is how the guest's processor is run.
func (m *Machine) Accel() Accel { return m.o.Accel }

// Name returns machine.QEMU.
func (m *Machine) Name() string { return machine.QEMU }

// Describe says how the guest's processor is run.
func (m *Machine) Describe() string {
	if m.o.Accel == KVM {
		return "qemu (KVM)"
	}
	return "qemu (emulated, slow)"
}

// Profile says which steps the guest must have done.
func (m *Machine) Profile() sandbox.Profile { return sandbox.ProfileVM }

// Boundary is a virtual machine.
func (m *Machine) Boundary() machine.Boundary { return machine.BoundaryVM }

// ShareSource says that the host serves shares over the link.
func (m *Machine) ShareSource() string { return machine.SourceP9 }

// Landlock is what the image promises of its kernel.
func (m *Machine) Landlock(img *image.Image) (abi, errata int) {
	return img.Index.Landlock, img.Index.Errata
}

// baseMemory is what kernel, init and code need, in MiB; what apps may use by
// their limits comes on top.
const baseMemory = 128

func memory(apps []machine.App) int {
	total := baseMemory
	for _, a := range apps {
		total += a.Limits.MemoryMB
	}
	return total
}

// Start boots the image.
func (m *Machine) Start(ctx context.Context, c machine.Config) (machine.Instance, error) {
	path, err := Find(c.Image.Index.Arch)
	if err != nil {
		return nil, err
	}
	first := counter{}
	if m.o.Accel == TCG && steadyCounter() {
		first = readCounter()
	}
	art, err := c.Image.Seal(true)
	if err != nil {
		return nil, err
	}
	defer art.Close()
	p := plan{Path: path, KVM: m.o.Accel == KVM, Args: arguments(config{
		accel: m.o.Accel, memory: memory(c.Apps), tscKHz: khzSince(first), root: c.Image.Index.Root, monitor: m.o.Monitor != nil, count: m.o.CountInstructions,
	})}
	files := []*os.File{art.Kernel, art.Root}
	if m.o.Monitor != nil {
		files = append(files, m.o.Monitor)
	}
	p.Last = fdLink + len(files)
	hold := []*os.File{c.Dir.Lock()}
	if os.Geteuid() == 0 {
		ids, err := m.ids()
		if err != nil {
			return nil, err
		}
		defer ids.Release()
		p.ID = ids.Base
		hold = append(hold, ids.Lock())
	}
	ours, theirs, err := keeper.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	k, err := keeper.Start(keeper.Spec{Job: Job, Plan: p, Dir: c.Dir.Path, Files: append([]*os.File{theirs}, files...), Hold: hold})
	if err != nil {
		ours.Close()
		return nil, err
	}
	c.Dir.Release()
	if err := ctx.Err(); err != nil {
		k.Kill()
		k.Wait()
		return nil, err
	}
	return &instance{Conn: ours, keeper: k}, nil
}

// ids reserves an id of the host for QEMU.
func (m *Machine) ids() (*runtimedir.IDs, error) {
	rt := m.o.Runtime
	if rt == nil {
		var err error
		if rt, err = runtimedir.Open(runtimedir.Search{}); err != nil {
			return nil, err
		}
	}
	return rt.TakeIDs()
}

// Prepare is the keeper's job.
func Prepare(t keeper.Task) (*exec.Cmd, error) {
	raw, err := json.Marshal(t.Plan)
	if err != nil {
		return nil, err
	}
	planFile, err := keeper.MemFile("plan", raw)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"berth-vmm", StubArg}, Env: []string{},
		ExtraFiles:  append([]*os.File{t.Report, planFile}, t.Files...),
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}, nil
}

type instance struct {
	net.Conn
	keeper *keeper.Keeper
}

func (i *instance) Link() net.Conn         { return i.Conn }
func (i *instance) BindPath(string) string { return "" }
func (i *instance) Notes() []string        { return nil }
func (i *instance) Limit(string, policy.Limits) error {
	return nil // the guest's init makes a cgroup for each run
}
func (i *instance) Kill() { i.keeper.Kill() }

// Wait reads the reason off the console: a guest that panics resets the machine
// as one does that ended in order.
func (i *instance) Wait() machine.End {
	end := i.keeper.Wait()
	e := machine.End{Console: end.Console, Left: end.Left}
	if why := panicReason(end.Console); why != "" {
		e.Reason = "guest kernel panic: " + why
	} else if !end.OK {
		e.Reason = "QEMU ended: " + end.Status
		if last := lastLine(end.Console); last != "" {
			e.Reason += ": " + last
		}
	}
	return e
}

const panicMark = "Kernel panic - not syncing: "

func panicReason(console string) string {
	_, after, found := strings.Cut(console, panicMark)
	if !found {
		return ""
	}
	line, _, _ := strings.Cut(after, "\n")
	return fmt.Sprintf("%.200s", strings.TrimSpace(line))
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return fmt.Sprintf("%.200s", strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:]))
}

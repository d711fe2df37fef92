// Package choose owns the choice of a machine: by proof, not by presence, and
// never one without a VM boundary unless the user accepted that on this host.
package choose

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
)

// Auto is the name that leaves the choice to this package.
const Auto = "auto"

// Names are what --machine accepts.
func Names() []string { return []string{Auto, machine.QEMU, machine.Native} }

// Host is what a choice depends on.
type Host struct {
	Image   *image.Image
	State   *State           // nil: OpenState
	Runtime *runtimedir.Root // nil: runtimedir.Open
	// Trying, if set, is told what is being tried before it takes time.
	Trying func(what string)
}

// Choice is a machine and why it is the one.
type Choice struct {
	Machine machine.Machine
	Reason  string // a sentence
}

// Machine returns the machine of a name.
func Machine(ctx context.Context, h Host, name string) (Choice, error) {
	if name == machine.Native && h.State == nil {
		h.State = &State{} // what is remembered is about other machines
	}
	h, err := h.filled()
	if err != nil {
		return Choice{}, err
	}
	switch name {
	case machine.Native:
		if err := native.Check(); err != nil {
			return Choice{}, err
		}
		return Choice{native.New(native.Options{Runtime: h.Runtime}), "it was asked for; it has no VM boundary: the host's kernel enforces"}, nil
	case machine.QEMU:
		return h.qemu(ctx)
	case Auto, "":
		return h.auto(ctx)
	}
	return Choice{}, hint.Errorf("machines: "+strings.Join(Names(), ", "), "cannot use machine %q: there is none of this name", name)
}

func (h Host) filled() (Host, error) {
	var err error
	if h.State == nil {
		if h.State, err = OpenState(os.Getenv); err != nil {
			return h, err
		}
	}
	if h.Runtime == nil {
		if h.Runtime, err = runtimedir.Open(runtimedir.Search{}); err != nil {
			return h, err
		}
	}
	if h.Trying == nil {
		h.Trying = func(string) {}
	}
	return h, nil
}

// auto prefers a VM at full speed; then what the user accepted, since it is fast;
// then a VM that is slow.
func (h Host) auto(ctx context.Context) (Choice, error) {
	accepted, err := h.State.NativeAccepted()
	if err != nil {
		return Choice{}, err
	}
	vm, vmErr := h.qemu(ctx)
	if vmErr == nil && vm.Machine.(*qemu.Machine).Accel() == qemu.KVM {
		return vm, nil
	}
	if accepted && native.Check() == nil {
		return Choice{native.New(native.Options{Runtime: h.Runtime}), "you accepted it on this host, where KVM does not work; it has no VM boundary: the host's kernel enforces"}, nil
	}
	if vmErr == nil {
		vm.Reason += "; slow, but the only VM that this host can run (berth doctor tells of a faster way)"
		return vm, nil
	}
	return Choice{}, hint.Errorf("or accept the machine without a VM on this host, once: berth doctor --accept-native", "cannot choose a machine: %w", vmErr)
}

// qemu uses KVM if a trial has proved it.
func (h Host) qemu(ctx context.Context) (Choice, error) {
	if _, err := qemu.Find(h.Image.Index.Arch); err != nil {
		return Choice{}, err
	}
	p, err := h.provedKVM(ctx)
	if err != nil {
		return Choice{}, err
	}
	accel, why := qemu.TCG, "a VM whose processor is emulated, since "+p.Reason
	if p.OK {
		accel, why = qemu.KVM, "a VM, "+p.Reason
	}
	return Choice{qemu.New(qemu.Options{Accel: accel, Runtime: h.Runtime}), why}, nil
}

// provedKVM remembers the outcome of a trial, or makes it.
func (h Host) provedKVM(ctx context.Context) (proof, error) {
	if err := qemu.HasKVM(); err != nil {
		return proof{Reason: err.Error()}, nil // nothing was tried, so nothing is remembered
	}
	key, err := h.kvmKey()
	if err != nil {
		return proof{}, err
	}
	p, known, err := h.State.proof(key)
	if err != nil || known {
		return p, err
	}
	h.Trying("booting once with KVM, to see whether it works here")
	return h.tryKVM(ctx, key)
}

func (h Host) tryKVM(ctx context.Context, key string) (proof, error) {
	r := h.rehearse(ctx, qemu.New(qemu.Options{Accel: qemu.KVM, Runtime: h.Runtime}), kvmWithin)
	if ctx.Err() != nil {
		return proof{}, context.Cause(ctx)
	}
	p := proof{Key: key, OK: r.OK, Reason: "with KVM, which was proved by booting"}
	if !r.OK {
		p.Reason = "KVM does not work here: " + r.Reason
	}
	return h.State.keep(p), nil
}

// kvmKey names everything on which the outcome depends.
func (h Host) kvmKey() (string, error) {
	path, err := qemu.Find(h.Image.Index.Arch)
	if err != nil {
		return "", err
	}
	version, err := qemu.Version(path)
	if err != nil {
		return "", err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("cannot name this kernel: %w", err)
	}
	id, err := hostID()
	if err != nil {
		return "", err
	}
	return digest(id, unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]), processor(), path, version, h.Image.Index.Kernel.SHA256), nil
}

// processor is the model of the first processor.
func processor() string {
	raw, _ := os.ReadFile("/proc/cpuinfo") // the other parts of the key remain
	for line := range strings.Lines(string(raw)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

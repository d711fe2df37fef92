package choose

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
)

// How long a trial may take. A KVM that works needs less than a second.
const (
	kvmWithin   = 10 * time.Second
	probeWithin = 90 * time.Second
)

// Probe tries every machine on this host: it boots the image and has the
// enforcer do everything that it does for an app, canaries included, except to
// let one execute. The order is that of preference for speed with a VM.
func Probe(ctx context.Context, h Host) ([]machine.Result, error) {
	h, err := h.filled()
	if err != nil {
		return nil, err
	}
	return []machine.Result{h.probeKVM(ctx), h.probeTCG(ctx), h.probeNative(ctx)}, nil
}

func (h Host) probeKVM(ctx context.Context) machine.Result {
	r := machine.Result{Machine: machine.QEMU, Boundary: machine.BoundaryVM, Variant: string(qemu.KVM)}
	if _, err := qemu.Find(h.Image.Index.Arch); err != nil {
		return failed(r, err)
	}
	if err := qemu.HasKVM(); err != nil {
		return failed(r, err)
	}
	key, err := h.kvmKey()
	if err != nil {
		return failed(r, err)
	}
	h.Trying("booting with KVM")
	got := h.rehearse(ctx, qemu.New(qemu.Options{Accel: qemu.KVM, Runtime: h.Runtime}), kvmWithin)
	got.Variant = r.Variant
	p := proof{Key: key, OK: got.OK, Reason: "with KVM, which was proved by booting"}
	if !got.OK {
		p.Reason = "KVM does not work here: " + got.Reason
		got.Hint = "this host's KVM cannot run a guest (some nested ones cannot); an emulated VM is used instead"
	}
	if ctx.Err() == nil {
		if err := h.State.remember(p); err != nil {
			got.Facts = append(got.Facts, machine.Fact{Name: "not remembered", Value: err.Error()})
		}
	}
	return got
}

func (h Host) probeTCG(ctx context.Context) machine.Result {
	h.Trying("booting with an emulated processor")
	r := h.rehearse(ctx, qemu.New(qemu.Options{Accel: qemu.TCG, Runtime: h.Runtime}), probeWithin)
	r.Variant = string(qemu.TCG)
	if path, err := qemu.Find(h.Image.Index.Arch); err == nil {
		if v, err := qemu.Version(path); err == nil {
			r.Facts = append(r.Facts, machine.Fact{Name: "qemu", Value: v})
		}
	}
	return r
}

func (h Host) probeNative(ctx context.Context) machine.Result {
	m := native.New(native.Options{Runtime: h.Runtime})
	h.Trying("starting a sandbox on the host's kernel")
	r := h.rehearse(ctx, m, probeWithin)
	accepted, err := h.State.NativeAccepted()
	if err != nil {
		r.Facts = append(r.Facts, machine.Fact{Name: "accepted", Value: "unknown: " + err.Error()})
	} else {
		r.Facts = append(r.Facts, machine.Fact{Name: "accepted for auto", Value: strconv.FormatBool(accepted)})
	}
	return r
}

func failed(r machine.Result, err error) machine.Result {
	r.OK, r.Reason, r.Hint = false, err.Error(), hint.Of(err)
	return r
}

// rehearse starts a sandbox with an app that is enforced and never executed.
func (h Host) rehearse(ctx context.Context, m machine.Machine, within time.Duration) machine.Result {
	r := machine.Result{Machine: m.Name(), Boundary: m.Boundary()}
	app, err := nothing()
	if err != nil {
		return failed(r, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it did not finish within %s", within))
	defer cancel()
	begin := time.Now()
	s, err := sandbox.Start(ctx, sandbox.Options{Machine: m, Image: h.Image, Runtime: h.Runtime, Apps: []sandbox.App{app}, Rehearse: true, BootTimeout: within})
	if err != nil {
		return failed(r, err)
	}
	took := time.Since(begin).Round(time.Millisecond)
	defer s.Close(ctx)
	enforced := s.Apps()[0].Enforced
	r.OK, r.Reason = true, fmt.Sprintf("booted and enforced in %s", took)
	r.Weaker = append(s.Notes(), enforced.Weaker...)
	r.Facts = []machine.Fact{
		{Name: "kernel", Value: s.Booted().Kernel},
		{Name: "landlock abi", Value: strconv.Itoa(enforced.ABI)},
		{Name: "steps", Value: fmt.Sprint(enforced.Steps)},
	}
	return r
}

// nothing is an app that is never executed, with a policy that grants nothing.
func nothing() (sandbox.App, error) {
	dir, err := os.MkdirTemp("", "berth-probe-")
	if err != nil {
		return sandbox.App{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "nothing"), nil, 0o755); err != nil {
		return sandbox.App{}, err
	}
	var img bytes.Buffer
	code, _, err := appimage.Build(&img, dir)
	if err != nil {
		return sandbox.App{}, err
	}
	raw, err := policy.Policy{
		Schema: policy.Schema, App: "probe", Version: "0.0.0", Code: code, Argv: []string{"/app/nothing"},
		Rights: policy.Rights{Class: "base"},
		Limits: policy.Limits{CPUMilli: 1000, MemoryMB: 64, Pids: 32},
	}.Encode()
	return sandbox.App{Policy: raw, Image: img.Bytes()}, err
}

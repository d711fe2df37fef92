// Package attack owns the attack suite on a user's machine: it starts the attack
// app of the image the way any app is started, has it try every probe of
// init/sandbox/probe from every position, and judges what came of each.
package attack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/sandbox/probe"

	guest "github.com/berthos/berth/init/sandbox"
)

// Options says what is attacked where.
type Options struct {
	Machine machine.Machine
	Image   *image.Image
	Runtime *runtimedir.Root // nil: runtimedir.Open
	Groups  []string         // of probes; empty: all
	// Control starts a program of this host that hands its arguments to
	// probe.Maybe; nil: no control.
	Control func(ctx context.Context, args ...string) *exec.Cmd
	// Ablate names layers to leave out, which only tests can.
	Ablate []string
	Log    func(format string, args ...any) // progress; nil: silence
}

// Positions that only Berth itself makes.
const (
	restarted probe.Position = "restarted" // the process that was started again after a crash
	worker    probe.Position = "worker"    // the process of an export with fewer capabilities
)

// Run attacks and reports. An error means that the attack did not take place;
// what succeeded is in the report.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Machine == nil || o.Image == nil {
		return Report{}, errors.New("cannot attack: no machine or no image given")
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if known := Groups(); len(o.Groups) > 0 && !slices.ContainsFunc(o.Groups, func(g string) bool { return slices.Contains(known, g) }) {
		return Report{}, hint.Errorf(fmt.Sprint("groups: ", known), "cannot attack: there is no group %v", o.Groups)
	}
	f, err := newField()
	if err != nil {
		return Report{}, err
	}
	defer f.remove()
	r := &run{o: o, field: f, report: newReport(o)}
	begin := time.Now()
	if err := r.all(ctx); err != nil {
		return Report{}, err
	}
	r.report.Seconds = time.Since(begin).Seconds()
	return r.report, nil
}

// run is one attack.
type run struct {
	o        Options
	field    *field
	sb       *sandbox.Sandbox
	world    probe.World
	controls map[string]control
	records  bool
	report   Report
}

func (r *run) all(ctx context.Context) error {
	apps, err := r.apps()
	if err != nil {
		return err
	}
	r.o.Log("starting the attack app and its victim on %s", r.o.Machine.Describe())
	r.sb, err = sandbox.Start(ctx, sandbox.Options{
		Machine: r.o.Machine, Image: r.o.Image, Runtime: r.o.Runtime, Apps: apps, Ablate: r.o.Ablate,
		Shares: []sandbox.Share{{HostDir: r.field.share, Path: "/workspace"}},
	})
	if err != nil {
		return err
	}
	defer r.close()
	booted := r.sb.Booted()
	r.report.Kernel, r.report.ABI = booted.Kernel, booted.ABI
	r.world = probe.Inside(r.o.Machine.Profile() == guest.ProfileNativeUser, booted.ABI)
	r.world.Code, r.world.Beyond = "/app/berth.yml", "/workspace/"+partExtra+"/extra"
	r.world.VM = r.o.Machine.Profile() == guest.ProfileVM
	if err := r.field.plant(r.world); err != nil {
		return err
	}
	if err := r.control(ctx); err != nil {
		return err
	}
	d, err := r.sb.Denials(ctx, attacker, time.Now())
	if err != nil {
		return err
	}
	r.records, r.report.Records = d.Kept, d.Kept
	return r.positions(ctx)
}

// close ends the sandbox also if the attack was cancelled.
func (r *run) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.sb.Close(ctx); err != nil {
		r.o.Log("%v", err)
	}
}

// positions attacks from each position in turn, and last from the process that
// Berth starts again after a crash.
func (r *run) positions(ctx context.Context) error {
	if len(r.o.Ablate) > 0 {
		return r.from(ctx, probe.Main)
	}
	for _, at := range append([]probe.Position{probe.Main}, r.world.Positions()...) {
		if err := r.from(ctx, at); err != nil {
			return err
		}
	}
	if _, err := r.sb.Call(ctx, sandbox.CallRequest{App: attacker, Export: "die", Input: []byte("{}")}); err == nil {
		return errors.New("cannot attack after a restart: the attack app did not end")
	}
	for _, at := range []probe.Position{restarted, worker} {
		if err := r.from(ctx, at); err != nil {
			return err
		}
	}
	if err := r.beyond(ctx); err != nil {
		return err
	}
	return r.cross(ctx)
}

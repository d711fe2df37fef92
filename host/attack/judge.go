package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox/probe"
	"golang.org/x/sys/unix"
)

// attempt is one order carried out in the sandbox.
type attempt struct {
	results map[string]probe.Result
	denials sandbox.Denials
	changed map[string]bool
}

// from attacks from one position and judges. Where the kernel's records are
// read, what Landlock refused is tried again from the first position, each probe
// in a call of its own, so that its records are nobody else's.
func (r *run) from(ctx context.Context, at probe.Position) error {
	var probes []probe.Probe
	for _, p := range probe.All(r.world) {
		if why := r.leftOut(p); why != "" {
			if at == probe.Main {
				r.report.add(Outcome{Probe: describe(p), Position: at, Verdict: NotRun, Detail: why})
			}
			continue
		}
		if r.wanted(p.Group()) && at.Does(p) {
			probes = append(probes, p)
		}
	}
	if len(probes) == 0 {
		return nil
	}
	r.o.Log("attacking from position %s: %d probes", at, len(probes))
	all, err := r.together(ctx, attacker, at, probes)
	if err != nil {
		return err
	}
	for i, o := range all {
		if at == probe.Main && r.records && r.byLandlock(probes[i], o.Errno) {
			alone, err := r.together(ctx, attacker, at, probes[i:i+1])
			if err != nil {
				return err
			}
			if o.Verdict == Refused {
				o = alone[0]
			}
		}
		r.report.add(o)
	}
	return nil
}

// beyond has a worker go after what its app may read, which the main process can.
func (r *run) beyond(ctx context.Context) error {
	p := r.world.Narrowed()
	if !r.wanted(p.Group()) {
		return nil
	}
	main, err := r.attempt(ctx, attacker, probe.Main, []probe.Probe{p})
	if err != nil {
		return err
	}
	r.controls[p.ID] = control{ran: true, failure: main.results[p.ID].Error}
	all, err := r.together(ctx, attacker, worker, []probe.Probe{p})
	for _, o := range all {
		r.report.add(o)
	}
	return err
}

// cross attacks the victim from its rival.
func (r *run) cross(ctx context.Context) error {
	w := r.world
	w.Victim = probe.Neighbour(r.field.token)
	probes := w.Cross()
	if !r.wanted(probes[0].Group()) {
		return nil
	}
	r.world = w
	r.o.Log("attacking another app: %d probes", len(probes))
	all, err := r.together(ctx, rival, probe.Main, probes)
	for _, o := range all {
		r.report.add(o)
	}
	return err
}

func (r *run) wanted(group string) bool {
	return len(r.o.Groups) == 0 || slices.Contains(r.o.Groups, group)
}

// leftOut says why a probe can not be tried here.
func (r *run) leftOut(p probe.Probe) string {
	if p.ID == "FS-15o" && !r.field.devices {
		return "this user can not make the device node that it opens"
	}
	if len(r.o.Ablate) > 0 && !p.Claims(probe.Landlock) {
		return "the layer that refuses it is left out"
	}
	return ""
}

// together tries probes in one call and returns their outcomes in this order.
func (r *run) together(ctx context.Context, app string, at probe.Position, probes []probe.Probe) ([]Outcome, error) {
	a, err := r.attempt(ctx, app, at, probes)
	if err != nil {
		return nil, fmt.Errorf("cannot attack from position %s: %w", at, err)
	}
	var all []Outcome
	for _, p := range probes {
		all = append(all, r.judge(p, at, a))
	}
	return all, nil
}

func (r *run) attempt(ctx context.Context, app string, at probe.Position, probes []probe.Probe) (a attempt, err error) {
	before, err := r.field.state(probes)
	if err != nil {
		return a, err
	}
	order := probe.Order{At: at, World: r.world}
	export := "attack"
	switch at {
	case restarted:
		order.At = probe.Main
	case worker:
		order.At, export = probe.Main, narrowed
	}
	for _, p := range probes {
		order.IDs = append(order.IDs, p.ID)
	}
	since := time.Now()
	input, err := json.Marshal(map[string]any{"order": order})
	if err != nil {
		return a, err
	}
	out, err := r.sb.Call(ctx, sandbox.CallRequest{App: app, Export: export, Input: input})
	if err != nil {
		return a, err
	}
	var list []probe.Result
	if err := json.Unmarshal(out, &list); err != nil {
		return a, fmt.Errorf("the attack app answered what is no result: %w", err)
	}
	a.results = map[string]probe.Result{}
	for _, res := range list {
		a.results[res.ID] = res
	}
	if a.denials, err = r.sb.Denials(ctx, app, since); err != nil {
		return a, err
	}
	after, err := r.field.state(probes)
	if err != nil {
		return a, err
	}
	a.changed = changed(before, after)
	return a, nil
}

// judge says what came of one probe.
func (r *run) judge(p probe.Probe, at probe.Position, a attempt) Outcome {
	res, ran := a.results[p.ID]
	o := Outcome{Probe: describe(p), Position: at, Verdict: Refused, Detail: res.Error, Errno: unix.ErrnoName(res.Errno)}
	if c, ok := r.controls[p.ID]; ok {
		o.Control = c.String()
	}
	switch {
	case !ran:
		o.Verdict, o.Detail = Broken, "it did not answer"
	case p.Must && res.Error != "":
		o.Verdict = FalseDenial
	case p.Must:
		o.Verdict = Worked
	case res.Error == "":
		o.Verdict, o.Detail = Succeeded, "it was not refused"
	case a.changed[p.ID]:
		o.Verdict, o.Detail = Succeeded, "it was refused, and its files changed"
	case slices.Contains(p.Absent, res.Errno) && !slices.Contains(p.Want, res.Errno):
		o.Verdict = Absent
	case !slices.Contains(p.Want, res.Errno):
		o.Verdict, o.Detail = Broken, fmt.Sprintf("refused with %q, which is not among what was promised", res.Error)
	case r.records:
		r.evidence(p, a, &o)
	}
	return o
}

// evidence looks for the kernel's record of a denial by Landlock.
func (r *run) evidence(p probe.Probe, a attempt, o *Outcome) {
	if !r.byLandlock(p, o.Errno) {
		return
	}
	rec, err := find(p, a.denials)
	if err != nil {
		o.Verdict, o.Detail = NoRecord, err.Error()
		return
	}
	o.Record = strings.Join(rec.Blockers, ",") + " " + rec.Path + rec.Object
}

// byLandlock says whether an errno is Landlock's. EACCES may be that of another
// layer that is asked before it, EXDEV that of two mounts.
func (r *run) byLandlock(p probe.Probe, errno string) bool {
	first := p.Silent == "" || slices.Contains(r.o.Ablate, p.Silent)
	return errno == "EACCES" && first || errno == "EXDEV" && len(p.Layers) == 1
}

// find returns the record of what a probe did: one of its rights, on its object.
func find(p probe.Probe, d sandbox.Denials) (link.DenialRecord, error) {
	if len(p.Blocks) == 0 {
		return link.DenialRecord{}, errors.New("refused as Landlock does, which the probe does not expect")
	}
	on := p.On
	if on == "" {
		on = p.ID
	}
	var seen []string
	suppressed := uint64(0)
	for _, rec := range d.Records {
		suppressed += rec.Suppressed + rec.Lost
		if rec.Seccomp || len(rec.Blockers) == 0 {
			continue
		}
		hit := slices.ContainsFunc(rec.Blockers, func(b string) bool { return slices.Contains(p.Blocks, b) })
		if hit && strings.Contains(rec.Path+rec.Object, on) {
			return rec, nil
		}
		seen = append(seen, strings.Join(rec.Blockers, ",")+" "+rec.Path+rec.Object)
	}
	return link.DenialRecord{}, fmt.Errorf("the kernel's record is missing: want %v on …%s…, there are %q, %d suppressed or lost, complete: %v", p.Blocks, on, seen, suppressed, d.Complete)
}

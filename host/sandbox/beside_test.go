package sandbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berthos/berth/host/attack"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/sandbox/probe"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/worklayer"
)

// TestWorkBesideAttacks does ordinary work in one app while another app of the
// sandbox attacks, from every position, again and again: no attack succeeds, and
// no work is refused.
func TestWorkBesideAttacks(t *testing.T) {
	t.Run("native", func(t *testing.T) {
		if err := native.Check(); err != nil {
			testenv.Skip(t, err.Error())
		}
		machinetest.Both(t, workShared(t), func(t *testing.T) {
			newWorld(t, nativeMachine).beside(t, worklayer.Node(), 1024, 2, workIn{Dir: "/workspace", Scale: 5, Repo: "/workspace/existing", Skip: []string{"npm"}, Need: []string{"git-existing", "git", "python", "node"}})
		})
	})
	if machinetest.Again() {
		return
	}
	t.Run("qemu", func(t *testing.T) {
		emulated(t).beside(t, worklayer.Posix(), 512, 1, workIn{Dir: "/scratch", Scale: 0, Skip: []string{"git-large"}, Need: []string{"git", "python"}})
	})
}

// beside works until the attacker has attacked from every position, and in this
// many rounds at least.
func (w world) beside(t *testing.T, o worklayer.Options, memory, rounds int, in workIn) {
	a := assault{}
	a.working = w.startWork(t, workImage(t, o), memory, func(o *sandbox.Options) {
		o.Apps = append(o.Apps, w.attackApp(t))
		for _, part := range append([]string{"extra"}, parts...) {
			must(t, os.Mkdir(filepath.Join(o.Shares[0].HostDir, part), 0o755))
		}
	})
	a.plant(t)
	before := a.state(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	round, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		a.attack(ctx, round)
	}()
	pieces, attacked := 0, false
	for n := 0; n < rounds || !attacked; n++ {
		pieces += a.work(t, in)
		select {
		case <-round:
			attacked = true
		case <-ended:
			attacked = true
		default:
		}
	}
	stop()
	<-ended
	for _, what := range a.failed {
		t.Error(what)
	}
	if after := a.state(t); !maps.Equal(before, after) {
		t.Error("what the attacker may not change has changed")
	}
	if a.machine != machine.Native {
		a.noDenials(t)
	}
	t.Logf("%d pieces of work beside %d attacks and %d uses", pieces, a.refused, a.used)
	if a.refused < 300 || a.used == 0 {
		t.Errorf("only %d attacks and %d uses were tried", a.refused, a.used)
	}
}

// attackApp is the attack app of the image under the policy of its manifest.
func (w world) attackApp(t *testing.T) sandbox.App {
	t.Helper()
	for _, a := range w.image.Index.Apps {
		if a.Name == "attack" {
			raw, err := attack.Policy(a.Code).Encode()
			must(t, err)
			return sandbox.App{Policy: raw, InRoot: true, Code: a.Name}
		}
	}
	t.Fatal("the image has no attack app")
	return sandbox.App{}
}

// assault is what attacks beside work.
type assault struct {
	working
	world         probe.World
	probes        []probe.Probe
	refused, used int
	failed        []string // what should not have been
}

// parts of the share that the attack app's policy names, and one that it does not.
var parts = []string{"rw", "ro", "out"}

// plant makes what is attacked. Left out is what host/attack prepares more for:
// sockets and devices that the host made.
func (a *assault) plant(t *testing.T) {
	t.Helper()
	a.world = probe.Inside(a.machine == machine.Native && os.Getuid() != 0, a.Booted().ABI)
	a.world.VM, a.world.Code = a.machine != machine.Native, "/app/berth.yml"
	for _, p := range probe.All(a.world) {
		if p.Folders() && p.Group() == "PR" || p.ID == "FS-15o" {
			continue
		}
		a.probes = append(a.probes, p)
		for _, part := range parts {
			if dir := filepath.Join(a.ws, part, p.ID); p.Folders() {
				must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
				must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("original\n"), 0o644))
			}
		}
	}
}

// state is what the attacker may not change.
func (a *assault) state(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, part := range parts[1:] {
		must(t, filepath.WalkDir(filepath.Join(a.ws, part), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			var raw []byte
			if info.Mode().IsRegular() {
				raw, err = os.ReadFile(name)
			}
			state[name] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano(), sha256.Sum256(raw))
			return err
		}))
	}
	return state
}

// attack goes round the positions until ctx ends, and closes round after the
// first.
func (a *assault) attack(ctx context.Context, round chan struct{}) {
	for n := 0; ctx.Err() == nil && len(a.failed) == 0; n++ {
		for _, at := range append([]probe.Position{probe.Main}, a.world.Positions()...) {
			if err := a.from(ctx, at); err != nil && ctx.Err() == nil {
				a.failed = append(a.failed, fmt.Sprintf("attack from %s: %v", at, err))
			}
		}
		if n == 0 {
			close(round)
		}
	}
}

// from attacks from one position.
func (a *assault) from(ctx context.Context, at probe.Position) error {
	order := probe.Order{At: at, World: a.world}
	for _, p := range a.probes {
		if at.Does(p) {
			order.IDs = append(order.IDs, p.ID)
		}
	}
	input, err := json.Marshal(obj{"order": order})
	if err != nil {
		return err
	}
	out, err := a.Call(ctx, sandbox.CallRequest{App: "attack", Export: "attack", Input: input})
	if err != nil {
		return err
	}
	var results []probe.Result
	if err := json.Unmarshal(out, &results); err != nil {
		return err
	}
	if len(results) != len(order.IDs) {
		return fmt.Errorf("%d of %d probes answered", len(results), len(order.IDs))
	}
	for _, res := range results {
		p, _ := probe.Find(a.world, res.ID)
		switch {
		case p.Must && res.Error != "":
			a.failed = append(a.failed, fmt.Sprintf("%s from %s, a use: %s", p.ID, at, res.Error))
		case p.Must:
			a.used++
		case res.Error == "":
			a.failed = append(a.failed, fmt.Sprintf("%s from %s succeeded: %s", p.ID, at, p.What))
		case !slices.Contains(p.Want, res.Errno) && !slices.Contains(p.Absent, res.Errno):
			a.failed = append(a.failed, fmt.Sprintf("%s from %s: %s is not among what was promised", p.ID, at, res.Error))
		default:
			a.refused++
		}
	}
	return nil
}

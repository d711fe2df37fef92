package sandbox_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/init/sandbox/probe"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// field is a place to attack: a base with a share that has a folder for each
// probe.
type field struct {
	base
	profile sandbox.Profile
	world   probe.World
}

func newField(t *testing.T, profile sandbox.Profile, tags string) field {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		t.Fatal(err)
	}
	return field{newBase(t, profile, tags), profile, probe.Inside(profile == sandbox.ProfileNativeUser, abi)}
}

// plant makes the folders of the given probes anew, or of all, where they have
// any use for one.
func (f field) plant(t *testing.T, ids []string) {
	t.Helper()
	for _, part := range []string{"rw", "ro", "out"} {
		os.RemoveAll(filepath.Join(f.share, part))
		f.own(t, os.Mkdir(filepath.Join(f.share, part), 0o755), part)
		for _, p := range probe.All(f.world) {
			if !p.Folders() || len(ids) > 0 && !slices.Contains(ids, p.ID) {
				continue
			}
			f.own(t, os.MkdirAll(filepath.Join(f.share, part, p.ID, "d"), 0o755), part, p.ID, "d")
			f.own(t, os.WriteFile(filepath.Join(f.share, part, p.ID, "f"), []byte("original\n"), 0o644), part, p.ID, "f")
			f.own(t, nil, part, p.ID)
		}
	}
	device := "rw/FS-15o/device"
	if _, err := os.Stat(filepath.Join(f.share, filepath.Dir(device))); err == nil {
		f.own(t, unix.Mknod(filepath.Join(f.share, device), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), device)
	}
	write(t, filepath.Join(f.dir, "code/data"), []byte("data"))
	os.Chmod(filepath.Join(f.dir, "code/data"), 0o666)
	for _, s := range []struct{ name, kind string }{{"rw/PR-10/socket", "unix"}, {"rw/PR-10p/socket", "unix"}, {"rw/PR-10d/datagrams", "unixgram"}} {
		name := filepath.Join(f.share, s.name)
		if _, err := os.Stat(filepath.Dir(name)); err != nil {
			continue // not among the probes of this run
		}
		if s.kind == "unix" {
			l, err := net.ListenUnix(s.kind, &net.UnixAddr{Name: name, Net: s.kind})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		} else {
			l, err := net.ListenUnixgram(s.kind, &net.UnixAddr{Name: name, Net: s.kind})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}
		f.own(t, os.Chmod(name, 0o777), s.name)
	}
}

func (f field) own(t *testing.T, err error, parts ...string) {
	t.Helper()
	name := filepath.Join(append([]string{f.share}, parts...)...)
	if err == nil {
		err = os.Lchown(name, f.uid, f.uid)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot describes what lies in the folders that the app may not change, for
// every probe: names, modes, owners, times and contents.
func (f field) snapshot(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, part := range []string{"ro", "out"} {
		err := filepath.Walk(filepath.Join(f.share, part), func(name string, info os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			raw := []byte{}
			if info.Mode().IsRegular() {
				if raw, err = os.ReadFile(name); err != nil {
					return err
				}
			}
			rel, _ := filepath.Rel(f.share, name)
			st := info.Sys().(*syscall.Stat_t)
			attr := make([]byte, 64)
			n, _ := unix.Lgetxattr(name, "user.probe", attr)
			state[rel] = fmt.Sprintf("%v %d %d %v %q %d", info.Mode(), st.Uid, st.Gid, info.ModTime(), raw, n)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return state
}

// attack starts the attack app once, without what is ablated, and returns the
// results and which probes changed what they may not. With control set there
// is no enforcer at all.
func (f field) attack(t *testing.T, at probe.Position, control bool, ablate, ids []string) (map[string]probe.Result, map[string]bool) {
	t.Helper()
	f.plant(t, ids)
	before := f.snapshot(t)
	args := probe.Order{At: at, World: f.world, IDs: ids}.Args()
	j := f.job(f.profile, args, policy.Path{Path: "/workspace/ro", Access: policy.Read}, policy.Path{Path: "/workspace/rw", Access: policy.Write})
	j.Spec.Ablate = ablate
	if control {
		j.Plain = append([]string{"/app/attackapp"}, args...)
	} else {
		j = j.withCgroup(t)
	}
	o := start(t, j)
	if o.failed() != nil || o.Code != 0 {
		t.Fatalf("ablate %v: %+v, code %d\n%s%s", ablate, o.failed(), o.Code, o.Stdout, o.Stderr)
	}
	results := map[string]probe.Result{}
	for line := range strings.Lines(o.Stdout) {
		var r probe.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		results[r.ID] = r
	}
	changed := map[string]bool{}
	after := f.snapshot(t)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
		if before[name] != after[name] {
			if parts := strings.Split(name, "/"); len(parts) > 1 {
				changed[parts[1]] = true
			}
		}
	}
	return results, changed
}

var profiles = []sandbox.Profile{sandbox.ProfileNativeRoot, sandbox.ProfileNativeUser}

// In a guest of Berth's the environment says so, and there is one profile.
func init() {
	if p := os.Getenv("BERTH_TEST_PROFILE"); p != "" {
		profiles = []sandbox.Profile{sandbox.Profile(p)}
	}
}

// TestAttacks runs every probe without any layer (it must succeed), with all
// (it must be refused and change nothing), with all but one of its layers
// taken away, for each (refused all the same), and with none of its layers (it
// must succeed again).
func TestAttacks(t *testing.T) {
	for _, profile := range profiles {
		t.Run(string(profile), func(t *testing.T) {
			f := newField(t, profile, "ablation")
			control, _ := f.attack(t, probe.Main, true, nil, nil)
			enforced, changed := f.attack(t, probe.Main, false, nil, nil)
			var possible []probe.Probe
			for _, p := range probe.All(f.world) {
				f.check(t, p, enforced[p.ID], changed[p.ID], "enforced")
				switch r := control[p.ID]; {
				case r.ID == "":
					t.Errorf("control: %s did not run", p.ID)
				case r.Error == "":
					possible = append(possible, p)
				case r.Errno == unix.ENOSYS || slices.Contains(p.Absent, r.Errno):
					t.Logf("this kernel was built without what %s attacks (%s): %s", p.ID, p.What, r.Error)
				default:
					t.Errorf("control: %s (%s) must succeed: %q", p.ID, p.What, r.Error)
				}
			}
			f.ablated(t, possible)
		})
	}
}

// check wants a probe refused without effect, or, where it is a use that must
// work, successful.
func (f field) check(t *testing.T, p probe.Probe, r probe.Result, changed bool, where string) {
	t.Helper()
	switch {
	case r.ID == "":
		t.Errorf("%s: %s did not run", where, p.ID)
	case p.Must && r.Error != "":
		t.Errorf("%s: %s (%s) must work: %s", where, p.ID, p.What, r.Error)
	case p.Must:
	case r.Error == "" || changed:
		t.Errorf("%s: %s (%s) was not refused (changed: %v, error: %q)", where, p.ID, p.What, changed, r.Error)
	case !slices.Contains(p.Want, r.Errno) && !slices.Contains(p.Absent, r.Errno):
		t.Errorf("%s: %s (%s): refused with %q, want one of %v", where, p.ID, p.What, r.Error, p.Want)
	}
}

// ablated takes the layers of each probe away. What the same set of ablations
// answers shares a start.
func (f field) ablated(t *testing.T, probes []probe.Probe) {
	type question struct {
		probe    probe.Probe
		succeeds bool
	}
	runs := map[string][]question{}
	ask := func(p probe.Probe, layers []probe.Layer, succeeds bool) {
		key := strings.Join(flatten(layers), " ")
		runs[key] = append(runs[key], question{p, succeeds})
	}
	for _, p := range probes {
		if len(p.Layers) == 0 {
			continue
		}
		ask(p, p.Layers, true)
		for i := range p.Layers {
			if len(p.Layers) > 1 {
				ask(p, slices.Delete(slices.Clone(p.Layers), i, i+1), false)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(runs)) {
		var ids []string
		for _, q := range runs[key] {
			ids = append(ids, q.probe.ID)
		}
		results, changed := f.attack(t, probe.Main, false, strings.Fields(key), ids)
		for _, q := range runs[key] {
			r := results[q.probe.ID]
			if !q.succeeds {
				f.check(t, q.probe, r, changed[q.probe.ID], "without "+key)
			} else if r.ID == "" || r.Error != "" {
				t.Errorf("without %s: %s (%s) must succeed again: %q", key, q.probe.ID, q.probe.What, r.Error)
			}
		}
	}
}

func flatten(layers []probe.Layer) (names []string) {
	for _, l := range layers {
		names = append(names, l...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestPositions attacks from every way in which an app starts a process or a
// thread. One that was forked and executes nothing can only make single system
// calls: there a probe that consists of one is tried.
func TestPositions(t *testing.T) {
	for _, profile := range profiles {
		f := newField(t, profile, "")
		for _, at := range f.world.Positions() {
			t.Run(string(profile)+"/"+string(at), func(t *testing.T) {
				results, changed := f.attack(t, at, false, nil, nil)
				tried := 0
				for _, p := range probe.All(f.world) {
					if at.Does(p) {
						tried++
						f.check(t, p, results[p.ID], changed[p.ID], string(at))
					}
				}
				if tried < 50 {
					t.Errorf("only %d probes", tried)
				}
			})
		}
	}
}

// TestIDs: each ID names one probe, so that results and documents can.
func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range []probe.World{{ABI: 11}, {User: true, ABI: 7}} {
		clear(seen)
		for _, p := range probe.All(w) {
			if seen[p.ID] || p.What == "" || (p.Run == nil) == (p.Raw == nil) || p.Must && p.Layers != nil {
				t.Errorf("%s (%s): named twice, or not one attack", p.ID, p.What)
			}
			seen[p.ID] = true
		}
	}
}

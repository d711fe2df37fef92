package attack_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/attack"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox/probe"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testimage"
)

// TestGuestRoot has root of a guest, under no layer at all, attack what is
// outside of its VM. What came of it is looked at on the host.
func TestGuestRoot(t *testing.T) {
	if machinetest.Again() {
		return
	}
	dir := t.TempDir()
	for _, d := range []string{"open", "closed", "secret"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, d, "f"), []byte("original\n"), 0o644))
	}
	o := options(t, index.KindTest, emulated(t))
	img, err := image.Open(image.Location{Dir: testimage.Dir(t, index.KindTest), Source: "test"}, image.Options{AllowTest: true})
	must(t, err)
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	must(t, err)
	code := ""
	for _, a := range img.Index.Apps {
		if a.Name == "attack" {
			code = a.Code
		}
	}
	p := attack.Policy(code)
	p.Workers, p.Exports = nil, []string{"attack", "die"}
	p.Rights = policy.Rights{Class: "base", Paths: []policy.Path{
		{Path: "/tmp", Access: policy.Write}, {Path: "/workspace/closed", Access: policy.Read}, {Path: "/workspace/open", Access: policy.Write},
	}}
	raw, err := p.Encode()
	must(t, err)
	sb, err := sandbox.Start(t.Context(), sandbox.Options{
		Machine: o.Machine, Image: img, Runtime: rt, Apps: []sandbox.App{{Policy: raw, InRoot: true, Code: "attack"}}, Ablate: probe.NothingInside(),
		Shares: []sandbox.Share{{HostDir: filepath.Join(dir, "open"), Path: "/workspace/open"}, {HostDir: filepath.Join(dir, "closed"), Path: "/workspace/closed", ReadOnly: true}},
	})
	must(t, err)
	defer func() { must(t, sb.Close(t.Context())) }()
	w := probe.Inside(false, sb.Booted().ABI)
	w.Write, w.Read, w.Beyond = "/workspace/open", "/workspace/closed", filepath.Join(dir, "secret", "f")
	order := probe.Order{At: probe.Main, World: w}
	for _, p := range w.GuestRoot() {
		order.IDs = append(order.IDs, p.ID)
	}
	input, err := json.Marshal(map[string]any{"order": order})
	must(t, err)
	out, err := sb.Call(t.Context(), sandbox.CallRequest{App: "attack", Export: "attack", Input: input})
	must(t, err)
	var results []probe.Result
	must(t, json.Unmarshal(out, &results))
	for _, p := range w.GuestRoot() {
		i := slices.IndexFunc(results, func(r probe.Result) bool { return r.ID == p.ID })
		switch {
		case i < 0:
			t.Errorf("%s (%s) was not tried", p.ID, p.What)
		case p.Must && results[i].Error != "":
			t.Errorf("%s (%s) must work: %s", p.ID, p.What, results[i].Error)
		case !p.Must && results[i].Error == "":
			t.Errorf("%s (%s) succeeded", p.ID, p.What)
		case !p.Must && !slices.Contains(p.Want, results[i].Errno):
			t.Errorf("%s (%s): refused with %q", p.ID, p.What, results[i].Error)
		default:
			t.Logf("%s (%s): %s", p.ID, p.What, results[i].Error)
		}
	}
	untouched(t, dir)
}

// untouched looks for what the attacks would have left.
func untouched(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"closed/f", "secret/f"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(raw) != "original\n" {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "open/.git/hooks/pre-commit")); err == nil {
		t.Error("a hook is there")
	}
	made := 0
	must(t, filepath.WalkDir(filepath.Join(dir, "open"), func(name string, _ os.DirEntry, err error) error {
		must(t, err)
		info, err := os.Lstat(name)
		must(t, err)
		st := info.Sys().(*syscall.Stat_t)
		if st.Mode&0o6000 != 0 || st.Mode&unix.S_IFMT == unix.S_IFCHR || int(st.Uid) != os.Geteuid() {
			t.Errorf("%s: mode %o, uid %d", name, st.Mode, st.Uid)
		}
		made++
		return nil
	}))
	if made < 4 { // control: what was allowed is there
		t.Errorf("%d files", made)
	}
}

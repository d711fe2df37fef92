package attack_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/attack"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/init/sandbox/probe"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testimage"
)

var update = flag.Bool("update", false, "attack three times on each machine and rewrite docs/attacks.md")

// Environment of the run as an ordinary user.
const (
	envImage   = "BERTH_TEST_IMAGE"
	envResults = "BERTH_TEST_RESULTS" // where its summary goes; empty: nowhere
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	if code, ok := attack.Maybe(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// options are those of a machine on an image of the sources.
func options(t *testing.T, kind string, make func(*runtimedir.Root) machine.Machine) attack.Options {
	t.Helper()
	dir := os.Getenv(envImage)
	if dir == "" {
		dir = testimage.Dir(t, kind)
	}
	img, err := image.Open(image.Location{Dir: dir, Source: "test"}, image.Options{AllowTest: kind == index.KindTest})
	must(t, err)
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	must(t, err)
	return attack.Options{
		Machine: make(rt), Image: img, Runtime: rt, Log: t.Logf,
		Control: func(ctx context.Context, args ...string) *exec.Cmd {
			return exec.CommandContext(ctx, "/proc/self/exe", args...)
		},
	}
}

func onNative(rt *runtimedir.Root) machine.Machine {
	return native.New(native.Options{Runtime: rt})
}

func emulated(t *testing.T) func(*runtimedir.Root) machine.Machine {
	t.Helper()
	if _, err := qemu.Find(image.HostArch()); err != nil {
		testenv.Skip(t, err.Error())
	}
	return func(rt *runtimedir.Root) machine.Machine { return qemu.New(qemu.Options{Accel: qemu.TCG, Runtime: rt}) }
}

// TestSuite attacks on every machine: nothing may succeed, every use must work,
// and in a VM every denial by Landlock has its record.
func TestSuite(t *testing.T) {
	var results []attack.Summary
	dir := machinetest.Folder(t)
	file := filepath.Join(dir, "results")
	t.Run("native", func(t *testing.T) {
		if err := native.Check(); err != nil {
			testenv.Skip(t, err.Error())
		}
		var keep []string
		if !machinetest.Again() {
			must(t, os.CopyFS(filepath.Join(dir, "image"), os.DirFS(testimage.Dir(t, index.KindImage))))
			must(t, os.WriteFile(file, nil, 0o600))
			must(t, os.Chmod(file, 0o666)) // the ordinary user's
			keep = []string{envImage + "=" + filepath.Join(dir, "image")}
			if *update {
				keep = append(keep, envResults+"="+file)
			}
		}
		machinetest.Both(t, keep, func(t *testing.T) { results = append(results, suite(t, onNative)) })
	})
	if machinetest.Again() {
		if name := os.Getenv(envResults); name != "" {
			raw, err := json.Marshal(results)
			must(t, err)
			must(t, os.WriteFile(name, raw, 0o666))
		}
		return
	}
	t.Run("qemu", func(t *testing.T) { results = append(results, suite(t, emulated(t))) })
	if *update {
		var theirs []attack.Summary
		if raw, err := os.ReadFile(file); err == nil && len(raw) > 0 {
			must(t, json.Unmarshal(raw, &theirs))
		}
		save(t, slices.Concat(results, theirs))
	}
}

// suite attacks once, or three times if the documents are to be rewritten.
func suite(t *testing.T, make func(*runtimedir.Root) machine.Machine) attack.Summary {
	runs := 1
	if *update || os.Getenv(envResults) != "" {
		runs = 3
	}
	var all []attack.Report
	for range runs {
		report, err := attack.Run(t.Context(), options(t, index.KindImage, make))
		must(t, err)
		for _, o := range report.Bad() {
			t.Errorf("%s: %s from %s (%s): %s", o.Verdict, o.ID, o.Position, o.What, o.Detail)
		}
		complete(t, report)
		all = append(all, report)
	}
	must(t, all[0].Print(t.Output()))
	return attack.Summarize(all)
}

// complete wants an outcome of every probe, and a control of enough of them.
func complete(t *testing.T, r attack.Report) {
	t.Helper()
	have, controls := map[string]bool{}, 0
	for _, o := range r.Outcomes {
		if !have[o.ID] && o.Control == "succeeded" {
			controls++
		}
		have[o.ID] = true
	}
	for _, p := range probe.All(probe.World{ABI: r.ABI, User: strings.Contains(r.Machine, "ordinary user")}) {
		if !have[p.ID] {
			t.Errorf("%s (%s) was not tried", p.ID, p.What)
		}
	}
	if controls < 100 {
		t.Errorf("%d controls succeeded", controls)
	}
}

// TestWithoutLayersBefore leaves out what the kernel asks before Landlock, in a
// VM: Landlock refuses the same, and the kernel records each denial with the right
// and the object that fit what the probe did.
func TestWithoutLayersBefore(t *testing.T) {
	if machinetest.Again() {
		return
	}
	o := options(t, index.KindTest, emulated(t))
	o.Ablate = probe.BeforeLandlock()
	report, err := attack.Run(t.Context(), o)
	must(t, err)
	recorded := 0
	for _, out := range report.Outcomes {
		if out.Record != "" {
			recorded++
		}
		if out.Verdict.Bad() {
			t.Errorf("%s: %s (%s): %s", out.Verdict, out.ID, out.What, out.Detail)
		}
	}
	t.Logf("%d outcomes, %d with a record", len(report.Outcomes), recorded)
	if recorded < 24 {
		t.Errorf("only %d denials were recorded", recorded)
	}
}

// TestPolicy: the policy that is attacked is that of the manifest in the image.
func TestPolicy(t *testing.T) {
	if machinetest.Again() {
		return
	}
	const file = "../../apps/attack/berth.yml"
	code := "sha256:" + strings.Repeat("0", 64)
	raw, err := os.ReadFile(file)
	must(t, err)
	m, err := manifest.Parse(file, raw)
	must(t, err)
	compiled, _, err := compile.Compile(m, code)
	must(t, err)
	want, err := compiled.Encode()
	must(t, err)
	got, err := attack.Policy(code).Encode()
	must(t, err)
	if string(got) != string(want) {
		t.Errorf("attacked\n%s\nthe manifest's\n%s", got, want)
	}
}

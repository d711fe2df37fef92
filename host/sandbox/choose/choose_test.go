package choose

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testimage"
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// testHost is this host with its own memory and an image that is not booted.
func testHost(t *testing.T) Host {
	t.Helper()
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	idx := index.Index{Arch: image.HostArch(), Kernel: index.Artifact{SHA256: strings.Repeat("0", 64)}}
	return Host{Image: &image.Image{Index: idx}, State: testState(t), Runtime: rt, Trying: func(what string) { t.Errorf("it tries: %s", what) }}
}

// proved has the host remember an outcome for KVM, so that nothing is tried.
func (h Host) proved(t *testing.T, ok bool) Host {
	t.Helper()
	key, err := h.kvmKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.State.remember(proof{Key: key, OK: ok, Reason: "the test says so"}); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestChoice(t *testing.T) {
	accepted := func(t *testing.T, h Host) Host {
		if err := h.State.AcceptNative(); err != nil {
			t.Fatal(err)
		}
		return h
	}
	kvm := qemu.HasKVM() == nil
	cases := []struct {
		name    string
		ask     string
		proved  bool
		accept  bool
		want    string
		accel   qemu.Accel
		needKVM bool
	}{
		{"auto with KVM", Auto, true, false, machine.QEMU, qemu.KVM, true},
		{"auto with KVM prefers the VM", Auto, true, true, machine.QEMU, qemu.KVM, true},
		{"auto without KVM", Auto, false, false, machine.QEMU, qemu.TCG, false},
		{"auto without KVM, native accepted", Auto, false, true, machine.Native, "", false},
		{"qemu by name", machine.QEMU, false, true, machine.QEMU, qemu.TCG, false},
		{"native by name", machine.Native, true, false, machine.Native, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.needKVM && !kvm { // a proof is only asked for where /dev/kvm can be opened
				c.want, c.accel = machine.QEMU, qemu.TCG
				if c.accept {
					c.want = machine.Native
				}
			}
			h := testHost(t).proved(t, c.proved)
			if c.accept {
				h = accepted(t, h)
			}
			got, err := Machine(context.Background(), h, c.ask)
			if err != nil {
				t.Fatal(err)
			}
			if got.Machine.Name() != c.want || got.Reason == "" {
				t.Errorf("chose %s: %q", got.Machine.Describe(), got.Reason)
			}
			if m, ok := got.Machine.(*qemu.Machine); ok && m.Accel() != c.accel {
				t.Errorf("chose %s", m.Describe())
			}
		})
	}
}

// Without QEMU there is no VM, and auto does not fall to a machine without one.
func TestNoQEMU(t *testing.T) {
	h := testHost(t)
	h.Image.Index.Arch = "riscv" // for which no QEMU is known
	_, err := Machine(context.Background(), h, Auto)
	if err == nil || !strings.Contains(hint.Of(err), "--accept-native") {
		t.Errorf("not accepted: %v, hint %q", err, hint.Of(err))
	}
	if err := h.State.AcceptNative(); err != nil {
		t.Fatal(err)
	}
	got, err := Machine(context.Background(), h, Auto)
	if err != nil || got.Machine.Name() != machine.Native {
		t.Errorf("accepted: %+v, %v", got, err)
	}
}

func TestUnknownMachine(t *testing.T) {
	_, err := Machine(context.Background(), testHost(t), "docker")
	if err == nil || !strings.Contains(hint.Of(err), "auto, qemu, native") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
}

// TestProbe boots for real: the emulated VM and the native machine must work on
// any host that runs this test, and KVM must give an answer, whichever.
func TestProbe(t *testing.T) {
	img, err := image.Open(image.Location{Dir: testimage.Dir(t, index.KindImage), Source: "test"}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := native.Check(); err != nil {
		testenv.Skip(t, err.Error())
	}
	if _, err := qemu.Find(img.Index.Arch); err != nil {
		testenv.Skip(t, err.Error())
	}
	h := testHost(t)
	h.Image, h.Trying = img, nil
	results, err := Probe(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Logf("%+v", r)
		if r.Reason == "" {
			t.Errorf("%s %s: no reason", r.Machine, r.Variant)
		}
		if !r.OK && r.Variant != string(qemu.KVM) {
			t.Errorf("%s %s does not work: %s", r.Machine, r.Variant, r.Reason)
		}
		for _, f := range r.Facts {
			if f.Name == "steps" && !strings.Contains(f.Value, sandbox.StepCanaries) {
				t.Errorf("%s did without canaries: %s", r.Machine, f.Value)
			}
		}
	}
	if qemu.HasKVM() == nil {
		key, err := h.kvmKey()
		if err != nil {
			t.Fatal(err)
		}
		if _, known, err := h.State.proof(key); !known || err != nil {
			t.Errorf("the outcome for KVM is not remembered: %v", err)
		}
	}
}

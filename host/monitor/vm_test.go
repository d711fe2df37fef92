package monitor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/monitor"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testimage"
)

// TestServesShares: a confined monitor serves the folders of a VM, as root with
// the rights of their owners: the guest mounts them before it says that it booted.
func TestServesShares(t *testing.T) {
	if _, err := qemu.Find(image.HostArch()); err != nil {
		testenv.Skip(t, err.Error())
	}
	img, err := image.Open(image.Location{Dir: testimage.Dir(t, index.KindImage), Source: "test"}, image.Options{})
	must(t, err)
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	must(t, err)
	w := world{image: img, runtime: rt}
	dir := machinetest.Folder(t)
	o := w.options(t, dir)
	o.Start.Machine, o.Start.Accel = machine.QEMU, qemu.TCG
	caps := "0000000000000000"
	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, 12345, 12345))
		caps = "00000000000000c0" // CAP_SETGID, CAP_SETUID
	}
	m, err := monitor.Start(t.Context(), o)
	must(t, err)
	defer w.close(t, m)
	if got := field(status(t, m.PID()), "CapEff"); got != caps {
		t.Errorf("CapEff is %s, want %s", got, caps)
	}
	vmm := machinetest.Named(t, machinetest.Below(t, m.PID()), "/usr/bin/qemu-system")
	if got := field(status(t, vmm.PID), "Seccomp"); got != "2" {
		t.Errorf("QEMU's Seccomp is %s, want 2: a filter", got)
	}
	if got := field(status(t, os.Getpid()), "Seccomp"); got != "0" {
		t.Logf("no control: this test runs under a filter itself (Seccomp %s)", got)
	}
}

package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berthos/berth/release/index"
)

// Accel is how QEMU runs the guest's processor.
type Accel string

// The two ways.
const (
	KVM Accel = "kvm"
	TCG Accel = "tcg"
)

// Descriptors of the stub; QEMU inherits those from fdLink on.
const (
	fdReport = iota + 3
	fdPlan
	fdLink
	fdKernel
	fdRoot
	fdMonitor // tests only
)

// config is what a command line depends on.
type config struct {
	accel  Accel
	memory int // MiB
	tscKHz int64
	root   index.Root

	monitor bool // tests only
	count   bool // benches only
}

// arguments returns QEMU's arguments. The guest gets a block device with the
// verified root image, entropy, a console, and the link; there is nothing else,
// no network device above all.
func arguments(c config) []string {
	if c.count {
		c.tscKHz = 1_000_000 // one tick a nanosecond of virtual time, which is one instruction
	}
	args := []string{
		"-name", "berth",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", "microvm,acpi=off,isa-serial=on,rtc=on,pit=on,pic=on,x-option-roms=off",
		"-accel", string(c.accel), "-cpu", c.cpu(), "-smp", "1", "-m", strconv.Itoa(c.memory),
		"-kernel", "/proc/self/fd/" + strconv.Itoa(fdKernel),
		"-append", c.append(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-add-fd", "fd=" + strconv.Itoa(fdRoot) + ",set=1",
		"-blockdev", "driver=file,node-name=root,filename=/dev/fdset/1,read-only=on,auto-read-only=off,locking=off",
		"-device", "virtio-blk-device,drive=root",
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-device,rng=rng",
		"-chardev", "socket,id=link,fd=" + strconv.Itoa(fdLink),
		"-device", "virtio-serial-device", "-device", "virtserialport,chardev=link,name=berth.link",
	}
	if c.count {
		args = append(args, "-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm", "-seed", "1")
	}
	if c.monitor {
		args = append(args, "-chardev", "socket,id=monitor,fd="+strconv.Itoa(fdMonitor), "-mon", "monitor")
	}
	return args
}

func (c config) cpu() string {
	if c.accel == KVM {
		return "host"
	}
	return "max,-erms,-bmi2" // TCG runs copies of ERMS byte by byte, and the sha256 that BMI2 selects slowly
}

// append is the kernel's command line. The bare word vm becomes init's argument;
// "-- vm" would not do, as QEMU adds the devices at the end by itself.
func (c config) append() string {
	words := []string{
		"console=ttyS0", "quiet", "reboot=t", "panic=-1",
		`dm-mod.create="` + c.root.DMCreate("/dev/vda") + `"`,
		"rcupdate.rcu_expedited=1", // a boot that waits for grace periods waits for ticks
		"root=/dev/dm-0", "ro", "rootwait", "rootfstype=erofs", "init=/sbin/init", "vm",
	}
	if c.accel == TCG && c.tscKHz > 0 {
		// What the kernel would measure and check with emulated timers, at the cost
		// of most of the boot; see vm facts in README.md.
		words = append(words, "no_timer_check", "nolapic_timer", "tsc=reliable", fmt.Sprintf("tsc_early_khz=%d", c.tscKHz))
	}
	if c.monitor {
		words = append(words, "sysctl.kernel.panic_on_unrecovered_nmi=1")
	}
	return strings.Join(words, " ")
}

// Package testvm owns the machine on which tests and benchmarks boot a kernel:
// its command line and its initramfs. It is the machine model of
// host/machine/qemu with an emulated processor, without that package's
// confinement and verification, so that a test can boot what is wrong.
package testvm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// QEMU is the emulator's name.
const QEMU = "qemu-system-x86_64"

// quiet removes what a kernel does about time at boot that depends on the
// emulator, and ends the machine when the kernel panics.
const quiet = "console=ttyS0 reboot=t panic=-1 quiet no_timer_check nolapic_timer tsc=reliable tsc_early_khz="

// Machine is one machine. Its console is QEMU's standard output.
type Machine struct {
	Kernel   string
	Initrd   string // an initramfs; "": none
	MemoryMB int    // 0: 256
	Words    string // added to the kernel's command line
	Link     string // a unix socket that becomes the port berth.link; "": no port
	KHz      int    // the time stamp counter's rate; 0: this host's
	Devices  []string
}

// Command returns QEMU with the machine's arguments.
func (m Machine) Command(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, QEMU, m.args()...)
}

func (m Machine) args() []string {
	memory, rate := m.MemoryMB, m.KHz
	if memory == 0 {
		memory = 256
	}
	if rate == 0 {
		rate = hostKHz()
	}
	args := []string{
		"-M", "microvm,acpi=off,isa-serial=on,rtc=on,pit=on,pic=on,x-option-roms=off",
		"-accel", "tcg", "-cpu", "max,-erms,-bmi2", // these two are slow to emulate
		"-m", strconv.Itoa(memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", m.Kernel,
		"-append", strings.TrimSpace(quiet + strconv.Itoa(rate) + " " + m.Words),
	}
	if m.Initrd != "" {
		args = append(args, "-initrd", m.Initrd)
	}
	if m.Link != "" {
		args = append(args, "-device", "virtio-serial-device", "-chardev", "socket,id=link,path="+m.Link, "-device", "virtserialport,chardev=link,name=berth.link")
	}
	return slices.Concat(args, m.Devices)
}

// hostKHz is the rate of the host's time stamp counter, about; where the host
// does not say it, one that a guest can live with.
func hostKHz() int {
	raw, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && mhz > 0 {
				return int(mhz * 1000)
			}
		}
	}
	return 1_000_000
}

// Initramfs packs empty folders and executable files, by name without a leading
// slash. A file's folder has to be among dirs.
func Initramfs(dirs []string, files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, dir := range dirs {
		if err := w.WriteHeader(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755}); err != nil {
			return nil, err
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | 0o755, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

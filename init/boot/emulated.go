package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// emulatedSlack is how late timers may be, in nanoseconds, on a processor that
// is emulated in software.
const emulatedSlack = "2000000"

// emulated is a boot step for QEMU without KVM. While it has work to do, Go's
// scheduler wakes a thread every 20 µs, in every Go program. That costs nothing
// on a real processor and half of an emulated one: a call took 14 ms instead
// of 7. Late timers are inherited by whatever PID 1 starts.
func (p *pid1) emulated(context.Context) error {
	if !p.sys.Emulated() {
		return nil
	}
	if err := p.sys.TimerSlack(emulatedSlack); err != nil {
		return fmt.Errorf("cannot let timers be late: %w", err)
	}
	return nil
}

// isEmulated knows QEMU's emulator by the name that it gives its processor.
func isEmulated() bool {
	raw, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && strings.Contains(string(raw), "QEMU TCG CPU")
}

// setTimerSlack sets the slack of all threads of this process.
func setTimerSlack(ns string) error {
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		err = errors.Join(err, writePlain("/proc/"+t.Name()+"/timerslack_ns", ns))
	}
	return err
}

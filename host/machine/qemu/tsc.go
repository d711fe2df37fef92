package qemu

import (
	"os"
	"strings"
	"time"
)

// An emulated guest reads the host's time stamp counter. Its kernel measures the
// counter's rate at boot, which takes long and often fails under load, unless
// told the rate; a wrong one makes its clock run fast or slow. No file or system
// call that every host allows gives the rate, so it is measured here, against
// the clock that the host keeps right.

// counter is the counter and the clock at one moment.
type counter struct {
	ticks uint64
	at    time.Time
}

// minSpan is how far apart two readings must be. A reading is good to some 50
// nanoseconds, so the rate is good to 5 parts in a million.
const minSpan = 20 * time.Millisecond

// readCounter reads both as closely together as it can.
func readCounter() (best counter) {
	narrowest := ^uint64(0)
	for range 50 {
		before := rdtsc()
		now := time.Now()
		after := rdtsc()
		if after-before < narrowest {
			narrowest = after - before
			best = counter{before + (after-before)/2, now}
		}
	}
	return best
}

// khzSince returns the rate since an earlier reading, waiting until they are far
// enough apart; 0 if the counter is no clock.
func khzSince(first counter) int64 {
	if first.ticks == 0 {
		return 0
	}
	if early := minSpan - time.Since(first.at); early > 0 {
		<-time.After(early)
	}
	last := readCounter()
	if last.ticks <= first.ticks {
		return 0
	}
	return int64(float64(last.ticks-first.ticks) / last.at.Sub(first.at).Seconds() / 1000)
}

// steadyCounter reports whether the counter runs at one rate on this host,
// whatever the processors do.
func steadyCounter() bool {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if key, flags, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "flags" {
			has := " " + strings.TrimSpace(flags) + " "
			return strings.Contains(has, " constant_tsc ") && strings.Contains(has, " nonstop_tsc ")
		}
	}
	return false
}

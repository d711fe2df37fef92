package qemu

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/release/index"
)

var update = flag.Bool("update", false, "write testdata anew")

func TestArguments(t *testing.T) {
	root := index.Root{DataSize: 40960, VerityRoot: strings.Repeat("ab", 32), VeritySalt: strings.Repeat("cd", 32)}
	for name, c := range map[string]config{
		"tcg": {accel: TCG, memory: 256, tscKHz: 2600002, root: root},
		"kvm": {accel: KVM, memory: 256, tscKHz: 2600002, root: root},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(arguments(c), "\n") + "\n"
			file := filepath.Join("testdata", name+".args")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("arguments differ from %s (go test -update writes it):\n%s", file, got)
			}
		})
	}
}

func TestPanicReason(t *testing.T) {
	for console, want := range map[string]string{
		"": "",
		"[    0.1] VFS: mounted\r\n[    0.2] Kernel panic - not syncing: dm-verity device corrupted\r\n[    0.3] Kernel Offset: disabled\r\n": "dm-verity device corrupted",
		"Kernel panic - not syncing: ":                             "",
		"Kernel panic - not syncing: " + strings.Repeat("x", 1000): strings.Repeat("x", 200),
	} {
		if got := panicReason(console); got != want {
			t.Errorf("%.60q: got %q, want %q", console, got, want)
		}
	}
}

// The measured rate is that of the clock: two measurements agree far better than
// the half per mille at which NTP would correct a clock.
func TestCounterRate(t *testing.T) {
	if !steadyCounter() {
		t.Log("this processor's counter is no clock, so it is not used")
		return
	}
	first := readCounter()
	a := khzSince(first)
	b := khzSince(first)
	if a == 0 || b == 0 {
		t.Fatalf("no rate: %d, %d kHz", a, b)
	}
	if diff := float64(a-b) / float64(b); diff > 5e-4 || diff < -5e-4 {
		t.Errorf("%d and %d kHz differ by %.6f", a, b, diff)
	}
	t.Logf("%d and %d kHz", a, b)
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// startLine is what BenchmarkStart of init/sandbox prints for a profile.
var startLine = regexp.MustCompile(`^BenchmarkStart/(native-\w+)/(bare|enforced)-\d+.* ([0-9.]+) ms/start`)

// enforcer measures what the enforcement of a policy adds to the start of an app:
// the same app executed in the same namespaces by itself, and by the enforcer.
func (b *bench) enforcer(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "test", "./init/sandbox", "-run", "^$", "-bench", "^BenchmarkStart$", "-benchtime", "100x").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	bare := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		m := startLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		ms, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return err
		}
		if m[2] == "bare" {
			bare[m[1]] = ms
			continue
		}
		b.add(figure{Name: "start of an app by the enforcer, " + m[1] + ", median", Value: ms, Unit: "ms", Peer: bare[m[1]], PeerIs: "executed alone", Target: "<= 10 more"})
	}
	if len(bare) == 0 {
		return fmt.Errorf("the benchmark said nothing: %s", out)
	}
	return nil
}

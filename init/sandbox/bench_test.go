package sandbox_test

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkStart starts an app that ends at once: executed alone in the
// namespaces that an app has, and by the enforcer. The difference of the two
// medians is what enforcement adds to a start.
func BenchmarkStart(b *testing.B) {
	for _, profile := range profiles {
		base := newBase(b, profile, "")
		j := base.job(profile, []string{"-nothing"}, grants("read:/workspace")...).withCgroup(b)
		bare := j
		bare.Plain = []string{"/app/attackapp", "-nothing"}
		var took [2]time.Duration
		for i, c := range []struct {
			name string
			job  job
		}{{"bare", bare}, {"enforced", j}} {
			b.Run(string(profile)+"/"+c.name, func(b *testing.B) {
				c.job.Times = b.N
				o := start(b, c.job)
				if len(o.Took) != b.N || o.Code != 0 {
					b.Fatalf("%d starts of %d, code %d: %+v %s", len(o.Took), b.N, o.Code, o.failed(), o.Stderr)
				}
				slices.Sort(o.Took)
				took[i] = o.Took[len(o.Took)/2]
				b.ReportMetric(float64(took[i].Microseconds())/1000, "ms/start")
			})
		}
		b.Logf("%s: enforcement adds %.1f ms to a start", profile, float64((took[1]-took[0]).Microseconds())/1000)
	}
}

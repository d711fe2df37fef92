package cgroup

import (
	"testing"

	"github.com/berthos/berth/init/policy"
)

func TestSmoke(t *testing.T) {
	h, err := find("/proc/self/mountinfo", "/proc/self/cgroup")
	t.Log(h, err)
	g, err := Create("berth-test", policy.Limits{CPUMilli: 500, MemoryMB: 64, Pids: 32})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(g.dirs, g.Missing)
	t.Log(g.Remove())
}

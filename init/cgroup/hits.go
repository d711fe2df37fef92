package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthos/berth/init/policy"
)

// Hits counts how often the limits of a group were hit since it was made.
type Hits struct {
	Memory int // processes that the kernel killed for it
	Pids   int // processes and threads that it did not start
}

// Since returns what came after an earlier count.
func (h Hits) Since(before Hits) Hits {
	return Hits{h.Memory - before.Memory, h.Pids - before.Pids}
}

// Text says what was hit, for whoever learns that a process has ended, or "".
// killed says whether it was by SIGKILL, as the kernel does for memory.
func (h Hits) Text(l policy.Limits, killed bool) string {
	switch {
	case h.Memory > 0 && killed:
		return fmt.Sprintf("out of memory: its limit is %d MiB", l.MemoryMB)
	case h.Pids > 0:
		return fmt.Sprintf("out of processes: its limit is %d, threads included", l.Pids)
	}
	return ""
}

// OOMKills is Hits.Memory of a group that is known by its folders.
func OOMKills(dirs []string) int { return count(dirs).Memory }

// count reads the kernel's counters, which have the same form everywhere.
func count(dirs []string) (h Hits) {
	for _, dir := range dirs {
		for _, c := range []struct {
			file, key string
			to        *int
		}{
			{"memory.events", "oom_kill ", &h.Memory},
			{"memory.oom_control", "oom_kill ", &h.Memory}, // v1
			{"pids.events", "max ", &h.Pids},
		} {
			raw, err := os.ReadFile(filepath.Join(dir, c.file))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(raw)) {
				if n, ok := strings.CutPrefix(line, c.key); ok {
					times, _ := strconv.Atoi(strings.TrimSpace(n)) // the kernel writes numbers
					*c.to += times
				}
			}
		}
	}
	return h
}

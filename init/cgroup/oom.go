package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OOMKills reads the kernel's count of processes of a group, given by its
// folders, that it killed for the limit on memory.
func OOMKills(dirs []string) int {
	for _, dir := range dirs {
		for _, file := range []string{"memory.events", "memory.oom_control"} { // v2, v1
			raw, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(raw)) {
				if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
					kills, _ := strconv.Atoi(strings.TrimSpace(n)) // the kernel writes numbers
					return kills
				}
			}
		}
	}
	return 0
}

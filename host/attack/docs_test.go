package attack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/attack"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/init/sandbox/probe"
)

const (
	docs    = "../../docs/attacks.md"
	results = "testdata/results.json" // of the last `make attacks`
)

// save keeps the results of every machine and rewrites the documents.
func save(t *testing.T, all []attack.Summary) {
	t.Helper()
	raw, err := json.MarshalIndent(all, "", "  ")
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(results), 0o755))
	must(t, os.WriteFile(results, append(raw, '\n'), 0o644))
	must(t, os.WriteFile(docs, generated(t), 0o644))
}

// TestDocs: docs/attacks.md has the probes that are in the code and the results
// that were kept; -update of TestSuite rewrites it.
func TestDocs(t *testing.T) {
	if machinetest.Again() {
		return
	}
	have, err := os.ReadFile(docs)
	must(t, err)
	if !bytes.Equal(have, generated(t)) {
		t.Error("docs/attacks.md is not what the code and the last results say: make attacks")
	}
}

// generated is docs/attacks.md with its tables made anew.
func generated(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile(docs)
	must(t, err)
	text := string(raw)
	for name, table := range map[string]string{"results": resultTables(t), "probes": probeTables(), "guest root": guestRootTable()} {
		begin, end := "<!-- "+name+": made by make attacks -->\n", "<!-- end of "+name+" -->"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("docs/attacks.md has no place for %s", name)
		}
		text = before + begin + table + end + after
	}
	return []byte(text)
}

func resultTables(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(results)
	if os.IsNotExist(err) {
		return ""
	}
	must(t, err)
	var all []attack.Summary
	must(t, json.Unmarshal(raw, &all))
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "\n**%s** (boundary: %s), kernel %s, Landlock ABI %d, image sha256 `%s`", s.Machine, s.Boundary, s.Kernel, s.ABI, s.Image)
		if s.Boundary == "virtual machine" {
			fmt.Fprintf(&b, ", kernel sha256 `%s`", s.KernelSHA256)
		}
		fmt.Fprintf(&b, ": %d runs, **%d attacks succeeded**, %d bad outcomes, %.0f s the slowest.\n\n", s.Runs, s.Succeeded, s.Bad, s.Seconds)
		b.WriteString("| group | probes | attacks | refused | allowed uses that worked | absent in this kernel | controls that succeeded | records of the kernel |\n|---|---|---|---|---|---|---|---|\n")
		for _, g := range s.Groups {
			fmt.Fprintf(&b, "| %s %s | %d | %d | %d | %d | %d | %d | %d |\n", g.ID, g.What, g.Probes, g.Attacks, g.Refused, g.Worked, g.Absent, g.Controls, g.Records)
		}
	}
	return b.String()
}

// probeTables lists the probes of every world, with the layers that are claimed.
func probeTables() string {
	in := map[string]map[string]string{} // group, then ID: the row
	worlds := []struct {
		name  string
		world probe.World
	}{{"V", probe.World{ABI: 11}}, {"R", probe.World{ABI: 7}}, {"U", probe.World{ABI: 7, User: true}}}
	layers := map[string]map[string]string{}
	what := map[string]probe.Probe{}
	for _, w := range worlds {
		w.world.Victim = probe.Neighbour("token")
		for _, p := range append(append(probe.All(w.world), w.world.Cross()...), w.world.Narrowed()) {
			if layers[p.ID] == nil {
				layers[p.ID], what[p.ID] = map[string]string{}, p
			}
			layers[p.ID][w.name] = claimed(p)
		}
	}
	for id, p := range what {
		var said []string
		for _, w := range worlds {
			claim, ok := layers[id][w.name]
			switch {
			case !ok:
				said = append(said, w.name+": not tried")
			case len(said) == 0 || !strings.HasSuffix(said[len(said)-1], ": "+claim):
				said = append(said, w.name+": "+claim)
			default:
				said[len(said)-1] = strings.Replace(said[len(said)-1], ":", " "+w.name+":", 1)
			}
		}
		text := strings.TrimPrefix(strings.Join(said, "; "), "V R U: ")
		alone := "yes"
		if p.Raw == nil {
			alone = ""
		}
		if in[p.Group()] == nil {
			in[p.Group()] = map[string]string{}
		}
		in[p.Group()][id] = fmt.Sprintf("| %s | %s | %s | %s |\n", id, p.What, text, alone)
	}
	var b strings.Builder
	for _, g := range attack.Groups() {
		fmt.Fprintf(&b, "\n### %s\n\n| probe | what is tried | refused by, each alone | also forked |\n|---|---|---|---|\n", g)
		ids := make([]string, 0, len(in[g]))
		for id := range in[g] {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			b.WriteString(in[g][id])
		}
	}
	return b.String()
}

// guestRootTable lists the attacks of TestGuestRoot.
func guestRootTable() string {
	var b strings.Builder
	b.WriteString("\n| probe | what is tried | answered with |\n|---|---|---|\n")
	for _, p := range (probe.World{}).GuestRoot() {
		if p.Must {
			continue
		}
		var want []string
		for _, e := range p.Want {
			want = append(want, unix.ErrnoName(e))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.ID, p.What, strings.Join(want, ", "))
	}
	return b.String() + "\n"
}

func claimed(p probe.Probe) string {
	switch {
	case p.Must:
		return "an allowed use"
	case len(p.Layers) == 0:
		return "it is not there"
	}
	var all []string
	for _, l := range p.Layers {
		all = append(all, strings.Join(l, " with "))
	}
	return strings.Join(all, ", ")
}

package attack

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/berthos/berth/init/sandbox/probe"
)

// Verdict is what came of a probe.
type Verdict string

// The verdicts. Bad names those that must not occur.
const (
	Refused     Verdict = "refused"
	Worked      Verdict = "worked"       // a use that must be possible was
	Absent      Verdict = "absent"       // the kernel was built without what it attacks
	NotRun      Verdict = "not run"      // it can not be tried here
	Succeeded   Verdict = "SUCCEEDED"    // the attack did
	FalseDenial Verdict = "FALSE DENIAL" // a use that must be possible was refused
	NoRecord    Verdict = "NO RECORD"    // refused by Landlock, and the kernel's record is missing or of something else
	Broken      Verdict = "BROKEN"       // it did not answer, or not as promised
)

// Bad says whether a verdict is a failure of the sandbox or of the suite.
func (v Verdict) Bad() bool {
	return v == Succeeded || v == FalseDenial || v == NoRecord || v == Broken
}

// Probe describes a probe.
type Probe struct {
	ID     string     `json:"id"`
	What   string     `json:"what"`
	Layers [][]string `json:"layers"` // each alone refuses it; empty: the sandbox does not contain what it attacks
}

// Outcome is what came of one probe from one position.
type Outcome struct {
	Probe
	Position probe.Position `json:"position"`
	Verdict  Verdict        `json:"verdict"`
	Errno    string         `json:"errno,omitempty"`
	Detail   string         `json:"detail,omitempty"`
	Record   string         `json:"record,omitempty"`  // the kernel's, where Landlock refused and records are read
	Control  string         `json:"control,omitempty"` // "succeeded", "no: why" or "not possible here: how"
}

// Report is what one run found.
type Report struct {
	Machine      string    `json:"machine"`
	Boundary     string    `json:"boundary"`
	Kernel       string    `json:"kernel"` // its release
	ABI          int       `json:"landlock_abi"`
	Image        string    `json:"image_sha256"`  // of the index
	KernelSHA256 string    `json:"kernel_sha256"` // of the image's kernel, which native does not use
	Records      bool      `json:"kernel_records"`
	Seconds      float64   `json:"seconds"`
	Outcomes     []Outcome `json:"outcomes"`
}

func newReport(o Options) Report {
	return Report{
		Machine: o.Machine.Describe(), Boundary: string(o.Machine.Boundary()), Image: o.Image.Digest,
		KernelSHA256: o.Image.Index.Kernel.SHA256, Outcomes: []Outcome{},
	}
}

func (r *Report) add(o Outcome) { r.Outcomes = append(r.Outcomes, o) }

func describe(p probe.Probe) Probe {
	d := Probe{ID: p.ID, What: p.What, Layers: [][]string{}}
	for _, l := range p.Layers {
		d.Layers = append(d.Layers, l)
	}
	return d
}

// Bad lists the outcomes that must not be.
func (r Report) Bad() (bad []Outcome) {
	for _, o := range r.Outcomes {
		if o.Verdict.Bad() {
			bad = append(bad, o)
		}
	}
	return bad
}

// group is a kind of probes.
type group struct{ id, what string }

func groups() []group {
	return []group{
		{"FS", "files"}, {"CN", "files that only Landlock protects"}, {"MT", "mounts and namespaces"},
		{"PR", "processes and how they speak"}, {"KS", "surface of the kernel"}, {"NT", "network"},
		{"RS", "resources"}, {"MA", "other apps of the sandbox"},
	}
}

// Groups lists the groups of probes.
func Groups() (ids []string) {
	for _, g := range groups() {
		ids = append(ids, g.id)
	}
	return ids
}

// Print writes the report as a table by group, and every bad outcome.
func (r Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "machine   %s (%s)\nkernel    %s, Landlock ABI %d\nimage     sha256 %s\n", r.Machine, r.Boundary, r.Kernel, r.ABI, r.Image)
	if r.Boundary == "virtual machine" {
		fmt.Fprintf(out, "          kernel sha256 %s\n", r.KernelSHA256)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ngroup\tprobes\tattacks\trefused\tallowed uses\tabsent here\tcontrol succeeded\trecorded\tbad")
	for _, g := range groups() {
		if c := r.count(g.id); c.probes > 0 {
			fmt.Fprintf(w, "%s %s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", g.id, g.what, c.probes, c.attacks, c.refused, c.worked, c.absent, c.controls, c.records, c.bad)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	bad := r.Bad()
	for _, o := range bad {
		fmt.Fprintf(out, "%s: %s from %s (%s): %s\n", o.Verdict, o.ID, o.Position, o.What, o.Detail)
	}
	_, err := fmt.Fprintf(out, "\n%d attacks in %.1f s: %d succeeded, %d bad in all\n", r.count("").attacks, r.Seconds, r.count("").succeeded, len(bad))
	return err
}

// counts are numbers of a group.
type counts struct{ probes, attacks, refused, worked, absent, controls, records, succeeded, bad int }

// count counts a group; "" counts all.
func (r Report) count(id string) (c counts) {
	seen := map[string]bool{}
	for _, o := range r.Outcomes {
		if !strings.HasPrefix(o.ID, id) {
			continue
		}
		if !seen[o.ID] {
			seen[o.ID] = true
			c.probes++
			if o.Control == "succeeded" {
				c.controls++
			}
		}
		switch {
		case o.Verdict == Worked:
			c.worked++
		case o.Verdict == Absent:
			c.absent++
		case o.Verdict == Refused:
			c.refused++
		case o.Verdict == Succeeded:
			c.succeeded++
		}
		if o.Verdict != NotRun && o.Verdict != Worked && o.Verdict != FalseDenial {
			c.attacks++
		}
		if o.Record != "" {
			c.records++
		}
		if o.Verdict.Bad() {
			c.bad++
		}
	}
	return c
}

// Sorted returns the outcomes by ID and position.
func (r Report) Sorted() []Outcome {
	return slices.SortedFunc(slices.Values(r.Outcomes), func(a, b Outcome) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(string(a.Position), string(b.Position)))
	})
}

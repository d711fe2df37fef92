package attack

// Summary is what several runs on one machine found, for the documents.
type Summary struct {
	Machine      string         `json:"machine"`
	Boundary     string         `json:"boundary"`
	Kernel       string         `json:"kernel"`
	ABI          int            `json:"landlock_abi"`
	Image        string         `json:"image_sha256"`
	KernelSHA256 string         `json:"kernel_sha256"`
	Runs         int            `json:"runs"`
	Seconds      float64        `json:"seconds"` // of the slowest run
	Succeeded    int            `json:"succeeded"`
	Bad          int            `json:"bad"`
	Groups       []GroupSummary `json:"groups"` // of the first run
}

// GroupSummary are the numbers of one group in one run.
type GroupSummary struct {
	ID       string `json:"id"`
	What     string `json:"what"`
	Probes   int    `json:"probes"`
	Attacks  int    `json:"attacks"`
	Refused  int    `json:"refused"`
	Worked   int    `json:"worked"`
	Absent   int    `json:"absent"`
	Controls int    `json:"controls"`
	Records  int    `json:"records"`
	Bad      int    `json:"bad"`
}

// Summarize sums up runs of the same machine; there is at least one.
func Summarize(runs []Report) Summary {
	first := runs[0]
	s := Summary{
		Machine: first.Machine, Boundary: first.Boundary, Kernel: first.Kernel, ABI: first.ABI,
		Image: first.Image, KernelSHA256: first.KernelSHA256, Runs: len(runs),
	}
	for _, r := range runs {
		s.Seconds = max(s.Seconds, r.Seconds)
		s.Succeeded += r.count("").succeeded
		s.Bad += len(r.Bad())
	}
	for _, g := range groups() {
		c := first.count(g.id)
		s.Groups = append(s.Groups, GroupSummary{
			ID: g.id, What: g.what, Probes: c.probes, Attacks: c.attacks, Refused: c.refused, Worked: c.worked,
			Absent: c.absent, Controls: c.controls, Records: c.records, Bad: c.bad,
		})
	}
	return s
}

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berthos/berth/init/policy"
)

// Change is one difference between two policies. Where names what it is about:
// "app", or the exports that it is about. Text is one line.
type Change struct {
	Widens bool   `json:"widens"`
	Where  string `json:"where"`
	Text   string `json:"text"`
}

// String is a change as one line.
func (c Change) String() string {
	sign := "-"
	if c.Widens {
		sign = "+"
	}
	if c.Where == "app" {
		return sign + " " + c.Text
	}
	return fmt.Sprintf("%s %s (only %s)", sign, c.Text, c.Where)
}

// Widens returns those of list that allow more than before.
func Widens(list []Change) (wider []Change) {
	for _, c := range list {
		if c.Widens {
			wider = append(wider, c)
		}
	}
	return wider
}

// Diff returns what changes from one policy of an app to the next, what allows
// more first. Digest of the code and version are no change: which code runs is
// not what a policy grants.
func Diff(from, to policy.Policy) []Change {
	app := rightsDiff(from.Rights, to.Rights)
	app = append(app, limitsDiff(from.Limits, to.Limits)...)
	app = append(app, plainDiff(from, to)...)
	for i := range app {
		app[i].Where = "app"
	}
	list := append(app, exportsDiff(from, to, app)...)
	slices.SortStableFunc(list, func(a, b Change) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

func rank(c Change) int {
	if c.Widens {
		return 0
	}
	return 1
}

// item is one thing that rights allow: as a sentence, and whether other rights
// allow it too.
type item struct {
	text string
	in   func(policy.Rights) bool
}

// items takes rights apart. What is in none of them is not allowed.
func items(r policy.Rights) (list []item) {
	add := func(in func(policy.Rights) bool, format string, args ...any) {
		list = append(list, item{fmt.Sprintf(format, args...), in})
	}
	for _, g := range r.Paths {
		verb := "read"
		if g.Access == policy.Write {
			verb = "write"
		}
		add(func(o policy.Rights) bool {
			_, ok := policy.Covers(policy.Policy{Rights: o}, g.Path, g.Access == policy.Write)
			return ok
		}, "%s files in %s", verb, quote(g.Path))
	}
	for _, port := range r.Connect {
		add(func(o policy.Rights) bool { return slices.Contains(o.Connect, port) }, "connect to port %d", port)
	}
	for _, port := range r.Bind {
		add(func(o policy.Rights) bool { return slices.Contains(o.Bind, port) }, "bind port %d", port)
	}
	if r.Terminal {
		add(func(o policy.Rights) bool { return o.Terminal }, "make and use pseudo terminals")
	}
	for _, i := range r.Invoke {
		if len(i.Exports) == 0 {
			add(func(o policy.Rights) bool { return o.Invokes(i.App, "") }, "call every export of app %s", quote(i.App))
		}
		for _, export := range i.Exports {
			add(func(o policy.Rights) bool { return o.Invokes(i.App, export) }, "call %s of app %s", quote(export), quote(i.App))
		}
	}
	for _, name := range r.Secrets {
		add(func(o policy.Rights) bool { return slices.Contains(o.Secrets, name) }, "be given the secret %s", quote(name))
	}
	for _, name := range r.HostExecuted {
		add(func(o policy.Rights) bool { return slices.Contains(o.HostExecuted, name) }, "change %s, which programs of the host execute or obey", quote(name))
	}
	return list
}

func rightsDiff(from, to policy.Rights) (list []Change) {
	for _, it := range items(to) {
		if !it.in(from) {
			list = append(list, Change{Widens: true, Text: "may now " + it.text})
		}
	}
	for _, it := range items(from) {
		if !it.in(to) {
			list = append(list, Change{Text: "may no longer " + it.text})
		}
	}
	return list
}

func limitsDiff(from, to policy.Limits) (list []Change) {
	for _, l := range []struct {
		what     string
		from, to int
		show     func(int) string
	}{
		{"CPUs", from.CPUMilli, to.CPUMilli, milli},
		{"MiB of memory", from.MemoryMB, to.MemoryMB, strconv.Itoa},
		{"threads", from.Pids, to.Pids, strconv.Itoa},
	} {
		if l.from != l.to {
			list = append(list, Change{Widens: l.to > l.from, Text: fmt.Sprintf("may use %s %s, before %s", l.show(l.to), l.what, l.show(l.from))})
		}
	}
	return list
}

// plainDiff has what changes without a right.
func plainDiff(from, to policy.Policy) (list []Change) {
	if from.App != to.App {
		list = append(list, Change{Widens: true, Text: fmt.Sprintf("is app %s, before %s", quote(to.App), quote(from.App))})
	}
	if !slices.Equal(from.Argv, to.Argv) {
		list = append(list, Change{Text: fmt.Sprintf("runs %s, before %s", quoteAll(to.Argv), quoteAll(from.Argv))})
	}
	had, has := from.AllExports(), to.AllExports()
	if gone := without(had, has); len(gone) > 0 {
		list = append(list, Change{Text: "no longer exports " + strings.Join(gone, ", ")})
	}
	if made := without(has, had); len(made) > 0 {
		list = append(list, Change{Text: "exports " + strings.Join(made, ", ") + " as well"})
	}
	return list
}

// exportsDiff compares the process that serves each export with the one that
// served it; a new export with the former process that differs least. What was
// said of the app is not said again.
func exportsDiff(from, to policy.Policy, said []Change) (list []Change) {
	groups := map[Change][]string{}
	var order []Change
	for _, export := range to.AllExports() {
		for _, c := range exportDiff(from, to, export) {
			if slices.ContainsFunc(said, func(s Change) bool { return s.Widens == c.Widens && s.Text == c.Text }) {
				continue
			}
			if groups[c] == nil {
				order = append(order, c)
			}
			groups[c] = append(groups[c], export)
		}
	}
	for _, c := range order {
		c.Where = count(len(groups[c]), "export ", "%d exports: ") + strings.Join(groups[c], ", ")
		list = append(list, c)
	}
	return list
}

func exportDiff(from, to policy.Policy, export string) []Change {
	now := rightsOf(to, export)
	if _, had := from.Serves(export); had {
		return rightsDiff(rightsOf(from, export), now)
	}
	var least []Change
	for i, process := range from.Processes() {
		p, err := from.For(process)
		if err != nil {
			continue
		}
		if wider := Widens(rightsDiff(p.Rights, now)); i == 0 || len(wider) < len(least) {
			least = wider
		}
	}
	return least
}

// rightsOf returns those of the process that serves an export.
func rightsOf(p policy.Policy, export string) policy.Rights {
	worker, ok := p.Serves(export)
	if !ok {
		return policy.Rights{}
	}
	one, err := p.For(worker)
	if err != nil {
		return policy.Rights{}
	}
	return one.Rights
}

func without(list, other []string) (rest []string) {
	for _, s := range list {
		if !slices.Contains(other, s) {
			rest = append(rest, quote(s))
		}
	}
	return rest
}

func quoteAll(list []string) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, quote(s))
	}
	return strings.Join(out, " ")
}

func milli(n int) string {
	s := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

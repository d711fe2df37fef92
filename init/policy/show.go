package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// The seccomp classes that a policy may name; package seccomp owns their
// profiles. ClassBase has no sockets but the app's own, ClassNetwork adds TCP
// and UDP, ClassTerminal what controls a terminal.
const (
	ClassBase            = "base"
	ClassNetwork         = "network"
	ClassTerminal        = "terminal"
	ClassNetworkTerminal = "network-terminal"
)

// String says in plain words what p lets its app do and what not.
func (p Policy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "app %s %s\n", p.App, p.Version)
	fmt.Fprintf(&b, "  code     %s\n", p.code())
	fmt.Fprintf(&b, "  runs     %s\n", strings.Join(p.quotedArgv(), " "))
	fmt.Fprintf(&b, "  exports  %s\n", orNone(wrap(p.AllExports(), "\n           ")))
	b.WriteString("\nfiles it may use\n")
	p.files(&b)
	b.WriteString(baseline)
	b.WriteString("\nnetwork\n")
	p.network(&b)
	p.further(&b)
	for _, w := range p.Workers {
		w.show(&b)
	}
	b.WriteString("\nlimits\n")
	fmt.Fprintf(&b, "  %s CPU, %d MiB memory, %d threads\n", milli(p.Limits.CPUMilli), p.Limits.MemoryMB, p.Limits.Pids)
	fmt.Fprintf(&b, "  system calls of the profile %q\n", p.Class)
	b.WriteString("\nit can not\n")
	p.cannot(&b)
	return b.String()
}

// code names the digest, unless it is the zero one that stands for none.
func (p Policy) code() string {
	if strings.Trim(p.Code, "0") == "sha256:" {
		return "not built yet"
	}
	return p.Code
}

// baseline is what every app has; the enforcer's README owns the list.
const baseline = `  always     its code in /app (read, execute), a private scratch folder (/scratch, its TMPDIR),
             /proc of its own processes, /dev/null zero full random urandom, a few files in /etc
`

func (r Rights) files(b *strings.Builder) {
	for _, g := range r.Paths {
		fmt.Fprintf(b, "  %-11s%s and everything below it%s\n", g.words(), strconv.Quote(g.Path), g.remark())
	}
	if len(r.Paths) == 0 {
		b.WriteString("  none of yours\n")
	}
	if len(r.HostExecuted) > 0 {
		fmt.Fprintf(b, "  also       %s, which programs of your machine execute or obey\n", wrap(quoted(r.HostExecuted), "\n             "))
	}
}

func (r Rights) network(b *strings.Builder) {
	if len(r.Connect)+len(r.Bind) == 0 {
		b.WriteString("  none\n")
		return
	}
	if len(r.Connect) > 0 {
		fmt.Fprintf(b, "  connect  %s (TCP and UDP), on its own loopback\n", portList(r.Connect))
	}
	if len(r.Bind) > 0 {
		fmt.Fprintf(b, "  bind     %s (TCP and UDP), on its own loopback\n", portList(r.Bind))
	}
}

// further says what only some apps may do.
func (r Rights) further(b *strings.Builder) {
	if len(r.Invoke) > 0 {
		b.WriteString("\napps it may call\n")
	}
	for _, i := range r.Invoke {
		what := "every export"
		if len(i.Exports) > 0 {
			what = "only " + wrap(i.Exports, "\n           ")
		}
		fmt.Fprintf(b, "  %-8s %s\n", i.App, what)
	}
	if r.Terminal {
		b.WriteString("\nterminals\n  pseudo terminals of its own\n")
	}
	if len(r.Secrets) > 0 {
		fmt.Fprintf(b, "\nsecrets it is given\n  %s\n", wrap(r.Secrets, "\n  "))
	}
}

// show says what a worker may do: nothing else of what the app may.
func (w Worker) show(b *strings.Builder) {
	fmt.Fprintf(b, "\nbut these exports may only do what follows (process %q, system calls of the profile %q)\n  %s\n", w.Name, w.Class, wrap(w.Exports, "\n  "))
	var inner strings.Builder
	w.files(&inner)
	inner.WriteString("  network: ")
	var net strings.Builder
	w.network(&net)
	inner.WriteString(strings.TrimLeft(net.String(), " "))
	w.further(&inner)
	for line := range strings.Lines(inner.String()) {
		if line != "\n" {
			b.WriteString("  " + line)
		}
	}
}

func quoted(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strconv.Quote(s))
	}
	return out
}

func (p Policy) cannot(b *strings.Builder) {
	writable := false
	for _, g := range p.Paths {
		writable = writable || g.Access == Write
	}
	b.WriteString("  read, list or see any other file of the workspace or the host\n")
	if writable {
		b.WriteString("  write anywhere else but in its scratch folder\n")
	} else {
		b.WriteString("  write anywhere but in its scratch folder\n")
	}
	b.WriteString("  execute a file from the folders above, gain privileges, or make devices and mounts\n")
	if len(p.Invoke) > 0 {
		b.WriteString("  reach the internet, the host's network, or another app but those above\n")
	} else {
		b.WriteString("  reach the internet, the host's network, or another app\n")
	}
	b.WriteString("  see or signal processes that are not its own\n")
}

func (g Path) words() string {
	if g.Access == Write {
		return "read+write"
	}
	return string(g.Access)
}

func (g Path) remark() string {
	if Below(g.Path, "/tmp") {
		return " (the app's own, empty at start)"
	}
	return ""
}

// quotedArgv leaves ordinary arguments as they are and quotes the others.
func (p Policy) quotedArgv() []string {
	quoted := make([]string, 0, len(p.Argv))
	for _, arg := range p.Argv {
		if q := strconv.Quote(arg); arg == "" || len(q) != len(arg)+2 || strings.ContainsAny(arg, " '") {
			arg = q
		}
		quoted = append(quoted, arg)
	}
	return quoted
}

// wrap joins words to lines of moderate length.
func wrap(words []string, newline string) string {
	const most = 80
	var b strings.Builder
	length := 0
	for i, word := range words {
		separator := ", "
		if length += len(word) + len(separator); length > most {
			separator, length = ","+newline, len(word)
		}
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(word)
	}
	return b.String()
}

func portList(ports []uint16) string {
	list := make([]string, 0, len(ports))
	for _, port := range ports {
		list = append(list, strconv.Itoa(int(port)))
	}
	return wrap(list, "\n           ")
}

// milli writes thousandths as a decimal number without trailing zeros.
func milli(n int) string {
	s := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

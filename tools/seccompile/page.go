package seccompile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berthos/berth/init/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

const pageHead = `# System calls

What each class of app may ask of the kernel. This page is made from the lists of ` + "`init/seccomp`" + `, from which the filters are compiled too; a test fails where it differs from them, and another asks a running kernel about every number.

The policy names the class: ` + "`base`" + ` for an app without network and terminal, ` + "`network`" + ` with ports to connect to or to bind, ` + "`terminal`" + ` with ` + "`terminal:attach:*`" + `, ` + "`network-terminal`" + ` with both.

| the call is | then the kernel | recorded |
|---|---|---|
| of another architecture, x32 and 32-bit x86 included | ends the process (SIGSYS) | yes |
| listed as refused | answers EPERM, without doing anything | yes |
| listed as allowed, and not also as refused | does it, if the other layers let it | no |
| not listed, known to Linux or not | answers ENOSYS, as an older kernel would: programs fall back | no |

Arguments count from 0. What the kernel reads as 32 bits is compared in its low 32 bits, whatever stands above them. Not on any list, among others: ` + "`clone3`" + ` and ` + "`openat2`" + `, whose flags and modes lie in memory, where no filter sees them; io_uring, which does without system calls what they would be refused; System V IPC and message queues; ` + "`remap_file_pages`" + `; NUMA placement. On a kernel whose Landlock ABI is below 9 a further filter refuses ` + "`socket`" + ` for unix sockets and ` + "`socketpair`" + ` for datagrams, because such a kernel can not tell an app's own sockets from those that somebody else left in a shared folder. No class may use ` + "`landlock_*`" + ` yet: only one for programs that confine themselves will need it.

Numbers 335 and 336 never reach a filter on kernels that have uprobes; such a kernel ends whoever calls them from elsewhere than its own trampoline.
`

// Page returns docs/syscalls.md.
func Page() (string, error) {
	var b strings.Builder
	b.WriteString(pageHead)
	common, only, err := sorted()
	if err != nil {
		return "", err
	}
	for _, part := range []struct {
		title   string
		verdict seccomp.Verdict
	}{{"Allowed to every class", seccomp.Allowed}, {"Refused to every class", seccomp.Refused}} {
		table(&b, part.title, slices.DeleteFunc(slices.Clone(common), func(e seccomp.Entry) bool { return e.Verdict != part.verdict }))
	}
	for _, class := range seccomp.Classes() {
		table(&b, fmt.Sprintf("Class `%s`", class), only[class])
	}
	if err := numbers(&b); err != nil {
		return "", err
	}
	return b.String(), nil
}

// sorted tells the entries of every class from those of some.
func sorted() (common []seccomp.Entry, only map[seccomp.Class][]seccomp.Entry, err error) {
	count := map[string]int{}
	profiles := map[seccomp.Class]seccomp.Profile{}
	for _, class := range seccomp.Classes() {
		if profiles[class], err = seccomp.For(class); err != nil {
			return nil, nil, err
		}
		for _, e := range profiles[class].Entries {
			count[fmt.Sprint(e)]++
		}
	}
	only = map[seccomp.Class][]seccomp.Entry{}
	for i, class := range seccomp.Classes() {
		for _, e := range profiles[class].Entries {
			switch {
			case count[fmt.Sprint(e)] < len(profiles):
				only[class] = append(only[class], e)
			case i == 0:
				common = append(common, e)
			}
		}
	}
	return common, only, nil
}

func table(b *strings.Builder, title string, entries []seccomp.Entry) {
	fmt.Fprintf(b, "\n## %s\n\n| verdict | calls | only if | why |\n|---|---|---|---|\n", title)
	for _, e := range entries {
		for len(e.Rules) > 0 {
			calls, when, rest := alike(e.Rules)
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", e.Verdict, "`"+strings.Join(calls, "` `")+"`", when, strings.ReplaceAll(e.Why, "|", "\\|"))
			e.Rules = rest
		}
	}
}

// alike takes the calls off a list whose conditions are those of its first.
func alike(rules []seccomp.Rule) (calls []string, when string, rest []seccomp.Rule) {
	of := func(call string) (conds [][]seccomp.Cond) {
		for _, r := range rules {
			if r.Call == call {
				conds = append(conds, r.Conds)
			}
		}
		return conds
	}
	first := of(rules[0].Call)
	for _, r := range rules {
		if !reflect.DeepEqual(of(r.Call), first) {
			rest = append(rest, r)
		} else if !slices.Contains(calls, r.Call) {
			calls = append(calls, r.Call)
		}
	}
	return calls, conditionText(first), rest
}

// conditionText says when one of several conjunctions holds. Those that ask for
// values of the same argument are put together.
func conditionText(any [][]seccomp.Cond) string {
	var ways []string
	for _, all := range any {
		var parts []string
		for _, c := range all {
			parts = append(parts, text(c))
		}
		ways = append(ways, strings.Join(parts, " and "))
	}
	for i := 1; i < len(ways); {
		at := strings.LastIndex(ways[i-1], " is ")
		if len(any[0]) == 1 && at > 0 && strings.HasPrefix(ways[i], ways[i-1][:at+4]) {
			ways[i-1] += ", " + ways[i][at+4:]
			ways = slices.Delete(ways, i, i+1)
			continue
		}
		i++
	}
	return strings.Join(ways, "; or ")
}

func text(c seccomp.Cond) string {
	switch {
	case c.Not:
		return fmt.Sprintf("argument %d is not %#x in all 64 bits", c.Arg, c.Value)
	case c.Mask == seccomp.Low:
		return fmt.Sprintf("argument %d is %#x", c.Arg, c.Value)
	case c.Mask == c.Value:
		return fmt.Sprintf("argument %d has %#x", c.Arg, c.Value)
	}
	return fmt.Sprintf("argument %d & %#x is %#x", c.Arg, c.Mask, c.Value)
}

// numbers lists every call that is named above with its numbers.
func numbers(b *strings.Builder) error {
	b.WriteString("\n## Numbers\n\n- : that architecture does not have the call, or the filter answers ENOSYS to it there.\n\n| call | x86_64 | arm64 |\n|---|---|---|\n")
	var names []string
	for _, class := range seccomp.Classes() {
		p, err := seccomp.For(class)
		if err != nil {
			return err
		}
		for _, r := range slices.Concat(p.Allow, p.Deny) {
			names = append(names, r.Call)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, numberText(name, libseccomp.ArchAMD64), numberText(name, libseccomp.ArchARM64))
	}
	return nil
}

func numberText(call string, target libseccomp.ScmpArch) string {
	if _, ok := number(call, target); !ok {
		return "-"
	}
	if n, recent := seccomp.Recent()[call]; recent {
		return fmt.Sprint(n)
	}
	n, err := libseccomp.GetSyscallFromNameByArch(call, target)
	if err != nil || n < 0 {
		return "-"
	}
	return fmt.Sprint(int(n))
}

package seccompile

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/berthos/berth/init/seccomp"
	"golang.org/x/sys/unix"
)

const pageFile = "../../docs/syscalls.md"

// TestPage keeps the published list the one that filters are compiled from.
func TestPage(t *testing.T) {
	got, err := Page()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(pageFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; review the change with -update", pageFile)
	}
	for _, class := range seccomp.Classes() {
		p, err := seccomp.For(class)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Entries {
			if e.Why == "" || len(e.Rules) == 0 {
				t.Errorf("%s: %+v has no reason, or is one for nothing", class, e)
			}
		}
	}
}

// published is what the page says about one call for one class.
type published struct{ allowed, refused, sometimes bool }

// readPage reads the page as a reader would: the lists of every class and one
// class's own, and the numbers of x86_64.
func readPage(t *testing.T, class seccomp.Class) (calls map[string]published, numbers map[int]string) {
	t.Helper()
	raw, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	calls, numbers = map[string]published{}, map[int]string{}
	section := ""
	for line := range strings.Lines(string(raw)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case section == "Numbers" && len(cells) == 3:
			if n, err := strconv.Atoi(cells[1]); err == nil {
				numbers[n] = cells[0]
			}
		case len(cells) == 4 && (strings.HasSuffix(section, "every class") || section == "Class `"+string(class)+"`"):
			for _, call := range strings.Fields(strings.ReplaceAll(cells[1], "`", "")) {
				p := calls[call]
				switch {
				case cells[2] != "":
					p.sometimes = true
				case cells[0] == string(seccomp.Allowed):
					p.allowed = true
				case cells[0] == string(seccomp.Refused):
					p.refused = true
				}
				calls[call] = p
			}
		}
	}
	return calls, numbers
}

// TestPublished asks the running kernel about every number and compares with
// what the page says.
func TestPublished(t *testing.T) {
	for _, class := range seccomp.Classes() {
		calls, numbers := readPage(t, class)
		o := order{Filters: filtersOf(t, class)}
		for nr := range uint32(2048) {
			if !beforeSeccomp(nr) {
				o.Calls = append(o.Calls, call2{nr, [6]uint64{}})
			}
		}
		_, out, err := tell(t, "answer", o)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var got []int
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != len(o.Calls) {
			t.Fatalf("%v: %d answers, want %d", err, len(got), len(o.Calls))
		}
		count := map[int]int{}
		for i, c := range o.Calls {
			name := numbers[int(c.Nr)]
			p, want := calls[name], int(unix.ENOSYS)
			switch {
			case p.refused:
				want = int(unix.EPERM)
			case p.sometimes:
				continue // TestKernel tries its conditions
			case p.allowed:
				want = allowedAs
			}
			count[want]++
			if got[i] != want {
				t.Errorf("%s: %s (%d): errno %d, the page says %d", class, name, c.Nr, got[i], want)
			}
		}
		if len(count) != 3 || count[allowedAs] < 200 {
			t.Errorf("%s: the page has verdicts %v, want all three", class, count)
		}
	}
}

package audit

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestGolden reads what a booted kernel 7.3 sent.
func TestGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/vm.txt")
	if err != nil {
		t.Fatal(err)
	}
	var a Assembler
	var got bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		kind, text, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(kind, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		events, err := a.Add(uint16(n), []byte(text))
		if err != nil {
			t.Errorf("%s%v", line, err)
		}
		for _, e := range events {
			e.Time = e.Time.UTC()
			out, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%s\n", out)
		}
	}
	if *update {
		if err := os.WriteFile("testdata/vm.golden", got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/vm.golden")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%s", got.Bytes())
	}
	if len(a.open) != 0 {
		t.Errorf("%d events are not complete", len(a.open))
	}
}

const stamp = "audit(1795986420.970:3): "

// TestHostileText has values that processes choose; the kernel writes them in
// hex digits as soon as they hold a blank, a quote or a control character.
func TestHostileText(t *testing.T) {
	for raw, want := range map[string]string{
		`"/tmp"`: "/tmp",
		`2F746D702F6120622263220A20706174683D222F657463220A`: "/tmp/a b\"c\"\n path=\"/etc\"\n",
		`FF2F00`:        "\uFFFD/\x00",
		`(null)`:        "",
		`"<no_memory>"`: "<no_memory>",
	} {
		var a Assembler
		if _, err := a.Add(TypeAccess, []byte(stamp+"domain=1f blockers=fs.make_reg path="+raw+` dev="tmpfs" ino=1`)); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		events, err := a.Add(TypeEnd, []byte(stamp))
		if err != nil || len(events) != 1 || events[0].Accesses[0].Path != want {
			t.Errorf("%s: %+v, %v; want %q", raw, events, err, want)
		}
	}
}

func TestUnreadableRecords(t *testing.T) {
	for text, kind := range map[string]uint16{
		"":                                                                     TypeAccess,
		"domain=1 blockers=fs.x":                                               TypeAccess,
		"audit(1.970:x): domain=1 blockers=a":                                  TypeAccess,
		"audit(1.97:3): domain=1 blockers=a":                                   TypeAccess,
		stamp + "blockers=fs.make_reg":                                         TypeAccess,
		stamp + "domain=zz blockers=fs.x":                                      TypeAccess,
		stamp + "domain=1 blockers=":                                           TypeAccess,
		stamp + "domain=1 blockers=FS;rm":                                      TypeAccess,
		stamp + "domain=1 domain=2 blockers=fs.make_reg":                       TypeAccess,
		stamp + `domain=1 blockers=fs.make_reg path="/tmp`:                     TypeAccess,
		stamp + `domain=1 blockers=fs.make_reg path="/t"mp"`:                   TypeAccess,
		stamp + `domain=1 blockers=fs.make_reg path=/tmp`:                      TypeAccess,
		stamp + `domain=1 blockers=fs.make_reg path=2F7`:                       TypeAccess,
		stamp + `domain=1 blockers=fs.make_reg path=`:                          TypeAccess,
		stamp + `domain=1 blockers=fs.make_reg path="/tmp" more`:               TypeAccess,
		stamp + `domain=1 blockers=net.connect_tcp daddr=x dest=80`:            TypeAccess,
		stamp + `domain=1 blockers=net.connect_tcp daddr=::1 dest=80000`:       TypeAccess,
		stamp + "domain=1 blockers=fs.x" + strings.Repeat(" a=b", maxFields):   TypeAccess,
		stamp + "domain=1 blockers=fs.x path=" + strings.Repeat("41", maxText): TypeAccess,
		stamp + "domain=1 status=deallocated denials=-1":                       TypeDomain,
		stamp + "domain=1 status=allocated pid=99999999999":                    TypeDomain,
		stamp + "domain=1 status=gone":                                         TypeDomain,
		stamp + `pid=1 comm="x" exe="/y" syscall=twelve`:                       TypeSeccomp,
		stamp + `pid=1 uid=0 msg='other-1'`:                                    TypeMark,
		stamp + `pid=1 uid=0 msg='berth-x'`:                                    TypeMark,
	} {
		var a Assembler
		if events, err := a.Add(kind, []byte(text)); err == nil {
			t.Errorf("%q was read: %+v", text, events)
		}
		if len(a.open) > 0 {
			t.Errorf("%q left something open", text)
		}
	}
}

// TestUnfinished has more system calls under way than are kept.
func TestUnfinished(t *testing.T) {
	var a Assembler
	for i := range maxUnfinished + 10 {
		events, err := a.Add(TypeAccess, fmt.Appendf(nil, "audit(1.000:%d): domain=1 blockers=ptrace opid=%d", i, i))
		if err != nil {
			t.Fatal(err)
		}
		if want := i - maxUnfinished; want >= 0 && (len(events) != 1 || events[0].Serial != uint64(want)) {
			t.Fatalf("record %d gave %+v, want event %d", i, events, want)
		}
	}
	if len(a.open) != maxUnfinished || len(a.order) != maxUnfinished {
		t.Errorf("%d and %d are kept", len(a.open), len(a.order))
	}
	if events, err := a.Add(TypeEnd, []byte("audit(1.000:200): ")); err != nil || len(events) != 1 || events[0].Accesses[0].Object != "pid 200" {
		t.Errorf("%+v, %v", events, err)
	}
	for range 3 * maxAccesses { // of one system call
		if _, err := a.Add(TypeAccess, []byte("audit(1.000:201): domain=1 blockers=ptrace")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.open[201].Accesses); n > maxAccesses {
		t.Errorf("%d accesses in one event", n)
	}
}

// FuzzAdd wants that no text breaks the limits.
func FuzzAdd(f *testing.F) {
	raw, err := os.ReadFile("testdata/vm.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		kind, text, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(kind, 10, 16)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(n), []byte(text))
	}
	f.Fuzz(func(t *testing.T, kind uint16, text []byte) {
		var a Assembler
		first, err := a.Add(kind, text)
		if err != nil && len(first) > 0 {
			t.Error("an error and events")
		}
		last, _ := a.Add(TypeEnd, text)
		for _, e := range append(first, last...) {
			if len(e.Accesses) > maxAccesses {
				t.Errorf("%d accesses", len(e.Accesses))
			}
			for _, a := range e.Accesses {
				if len(a.Path) > maxText || strings.ToValidUTF8(a.Path, "") != a.Path || len(a.Blockers) == 0 {
					t.Errorf("%+v", a)
				}
			}
		}
	})
}

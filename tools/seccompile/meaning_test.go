package seccompile

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/init/seccomp"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden keeps what libseccomp says about each filter, and the sha256 of
// its bytes, as text to be reviewed.
func TestGolden(t *testing.T) {
	for _, name := range []string{"x86_64", "arm64"} {
		filters, err := Compile(name)
		if err != nil {
			t.Fatal(err)
		}
		for file, f := range filters {
			golden := filepath.Join("testdata", name, strings.TrimSuffix(file, ".bpf")+".txt")
			got := fmt.Sprintf("# sha256 of the %d instructions: %x\n%s", len(f.BPF)/8, sha256.Sum256(f.BPF), f.Text)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; review the change with -update", golden)
			}
		}
	}
}

// Actions of the kernel's seccomp, the stricter the smaller.
const (
	retKill  = 0x80000000
	retErrno = 0x00050000
	retAllow = 0x7fff0000
	errEPERM = retErrno | 1
	errNOSYS = retErrno | 38
)

// target is an architecture as the kernel's audit numbers it.
type target struct {
	name  string
	token uint32
	info  *arch.Info
}

var targets = []target{
	{"x86_64", 0xc000003e, arch.X86_64},
	{"arm64", 0xc00000b7, arch.AARCH64},
}

// call is what a filter sees of a system call.
type call struct {
	nr    uint32
	token uint32
	args  [6]uint64
}

// packet lays a call out as struct seccomp_data, in the byte order that the
// interpreter loads words in. Both architectures are little endian: the low
// half of an argument comes first.
func (c call) packet() []byte {
	b := make([]byte, 64)
	binary.BigEndian.PutUint32(b, c.nr)
	binary.BigEndian.PutUint32(b[4:], c.token)
	for i, a := range c.args {
		binary.BigEndian.PutUint32(b[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(b[20+8*i:], uint32(a>>32))
	}
	return b
}

// loaded is a filter in an interpreter that has nothing to do with libseccomp.
func loaded(t *testing.T, raw []byte) *bpf.VM {
	t.Helper()
	var program []bpf.Instruction
	for ; len(raw) > 0; raw = raw[8:] {
		program = append(program, bpf.RawInstruction{
			Op: binary.LittleEndian.Uint16(raw), Jt: raw[2], Jf: raw[3], K: binary.LittleEndian.Uint32(raw[4:]),
		}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// answer runs filters as the kernel does: all of them, the latest first, and
// the strictest action wins; of equals, the latest one's.
func answer(t *testing.T, latestFirst []*bpf.VM, c call) uint32 {
	t.Helper()
	result := uint32(retAllow)
	for _, vm := range latestFirst {
		ret, err := vm.Run(c.packet())
		if err != nil {
			t.Fatal(err)
		}
		if int32(uint32(ret)&0xffff0000) < int32(result&0xffff0000) {
			result = uint32(ret)
		}
	}
	return result
}

// callName returns what the table of go-seccomp-bpf, or our list of recent
// calls, says about a number.
func (tg target) callName(nr uint32) string {
	if name, ok := tg.info.SyscallNumbers[int(nr)]; ok {
		if name == "fstatat" { // the kernel's name for it on arm64
			return "newfstatat"
		}
		return name
	}
	for name, n := range seccomp.Recent() {
		if n == int(nr) {
			return name
		}
	}
	return ""
}

// want is what a profile promises for a call.
func (tg target) want(p seccomp.Profile, c call) uint32 {
	if c.token != tg.token || c.nr >= 0x40000000 && tg.name == "x86_64" {
		return retKill
	}
	name := tg.callName(c.nr)
	if _, recent := seccomp.Recent()[name]; recent && tg.name == "arm64" {
		return errNOSYS // number: the compiler can not place it
	}
	switch p.Decide(name, c.args) {
	case seccomp.Allowed:
		return retAllow
	case seccomp.Refused:
		return errEPERM
	}
	return errNOSYS
}

// TestMeaning compares the filters with the profiles for every number, on the
// right and on wrong architectures, at every edge of every condition.
func TestMeaning(t *testing.T) {
	for _, tg := range targets {
		filters, err := Compile(tg.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, class := range seccomp.Classes() {
			p, err := seccomp.For(class)
			if err != nil {
				t.Fatal(err)
			}
			vms := []*bpf.VM{loaded(t, filters[class.DenyFile()].BPF), loaded(t, filters[class.AllowFile()].BPF)}
			tried := 0
			for _, c := range tg.calls(p) {
				tried++
				if got, want := answer(t, vms, c), tg.want(p, c); got != want {
					t.Errorf("%s %s: %s (%d) arch %x args %x: got %#x, want %#x", tg.name, class, tg.callName(c.nr), c.nr, c.token, c.args, got, want)
				}
			}
			t.Logf("%s %s: %d calls", tg.name, class, tried)
		}
	}
}

// TestNoUnix does the same for the filter that stands in for Landlock.
func TestNoUnix(t *testing.T) {
	tg := targets[0]
	filters, err := Compile(tg.name)
	if err != nil {
		t.Fatal(err)
	}
	vm := loaded(t, filters[seccomp.NoUnixFile].BPF)
	refused := 0
	for _, c := range tg.calls(seccomp.Profile{Deny: seccomp.NoUnix()}) {
		want := uint32(retAllow)
		switch name := tg.callName(c.nr); {
		case c.token != tg.token || c.nr >= 0x40000000:
			want = retKill
		case name == "socket" && uint32(c.args[0]) == 1, name == "socketpair" && c.args[1]&0xf == 2:
			want, refused = errEPERM, refused+1
		}
		if got := answer(t, []*bpf.VM{vm}, c); got != want {
			t.Errorf("%d args %x: got %#x, want %#x", c.nr, c.args, got, want)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// calls returns every number with plain arguments, on every architecture, and
// each call that has conditions with every mixture of their edges.
func (tg target) calls(p seccomp.Profile) (list []call) {
	tokens := []uint32{0xc000003e, 0x40000003, 0xc00000b7, 0x40000028, 0, 0xffffffff}
	numbers := []uint32{0x40000000, 0x40000001, 0x40000000 | 520, 0x7fffffff, 0x80000000, 0xfffffffe}
	for nr := range uint32(1024) {
		numbers = append(numbers, nr)
	}
	for _, nr := range numbers {
		for _, token := range tokens {
			list = append(list, call{nr, token, [6]uint64{}}, call{nr, token, [6]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}})
		}
	}
	for name, edges := range edgesOf(p) {
		nr, ok := tg.info.SyscallNames[name]
		if !ok {
			continue
		}
		for _, args := range mixtures(edges) {
			list = append(list, call{uint32(nr), tg.token, args})
		}
	}
	return list
}

// edgesOf returns, for each call with conditions and each of its arguments, the
// values at which some condition may turn.
func edgesOf(p seccomp.Profile) map[string][6][]uint64 {
	edges := map[string][6][]uint64{}
	for _, r := range slices.Concat(p.Allow, p.Deny) {
		for _, c := range r.Conds {
			e := edges[r.Call]
			for _, v := range []uint64{c.Value, c.Value + 1, c.Value - 1, c.Value | 1<<32, c.Value | 1<<63, c.Value | 0x800, c.Value | 0x80000, 0, ^uint64(0)} {
				if !slices.Contains(e[c.Arg], v) {
					e[c.Arg] = append(e[c.Arg], v)
				}
			}
			edges[r.Call] = e
		}
	}
	return edges
}

func mixtures(edges [6][]uint64) [][6]uint64 {
	all := [][6]uint64{{}}
	for i, values := range edges {
		if len(values) == 0 {
			continue
		}
		var next [][6]uint64
		for _, args := range all {
			for _, v := range values {
				args[i] = v
				next = append(next, args)
			}
		}
		all = next
	}
	return all
}

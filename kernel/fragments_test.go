package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseFragment(t *testing.T) {
	text := "# a comment\n\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=42\nCONFIG_D=-1\nCONFIG_E=\"a,b\"\nCONFIG_F=0x10\n"
	opts, err := ParseFragment("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range opts {
		got = append(got, fmt.Sprintf("%d %s=%s", o.Line, o.Name, o.Value))
	}
	want := []string{"3 CONFIG_A=y", "4 CONFIG_B=n", "5 CONFIG_C=42", "6 CONFIG_D=-1", `7 CONFIG_E="a,b"`, "8 CONFIG_F=0x10"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBadFragments(t *testing.T) {
	for _, bad := range []string{
		"# CONFIG_A is not set", "CONFIG_A=m", "CONFIG_A=", "CONFIG_A", "A=y", " CONFIG_A=y",
		"CONFIG_A=y ", "CONFIG_A=\"x", "CONFIG_A=x", "CONFIG_A=y # why", "CONFIG_A=y\nCONFIG_A=n", "CONFIG_A=y\r",
	} {
		if opts, err := ParseFragment("f", []byte("# first\n"+bad)); err == nil {
			t.Errorf("%q was accepted as %v", bad, opts)
		} else if !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: error without a place: %v", bad, err)
		}
	}
}

// What Berth's promises rest on, whatever else a fragment says.
func TestFragmentsAskForWhatIsPromised(t *testing.T) {
	on := strings.Fields(`SECURITY_LANDLOCK SECURITY_LANDLOCK_LOG SECURITY_YAMA SECCOMP_FILTER AUDIT AUDITSYSCALL
		DM_VERITY DM_INIT EROFS_FS HARDENED_USERCOPY FORTIFY_SOURCE INIT_ON_ALLOC_DEFAULT_ON STRICT_KERNEL_RWX
		STACKPROTECTOR_STRONG VMAP_STACK SLAB_FREELIST_HARDENED SLAB_FREELIST_RANDOM LIST_HARDENED
		BUG_ON_DATA_CORRUPTION RANDOMIZE_KSTACK_OFFSET_DEFAULT PANIC_ON_OOPS HW_RANDOM_VIRTIO`)
	off := strings.Fields(`MODULES IO_URING BPF_SYSCALL USERFAULTFD KEXEC KEXEC_FILE KEYS DEVMEM SWAP USER_NS MPTCP
		IP_SCTP PACKET NETDEVICES BINFMT_MISC COREDUMP DEBUG_FS NET_9P_VIRTIO PCI ACPI LEGACY_TIOCSTI KPROBES`)
	for _, arch := range Arches {
		fragments, err := Fragments(arch)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[string]string{}
		for _, o := range Options(fragments) {
			asked[strings.TrimPrefix(o.Name, "CONFIG_")] = o.Value
		}
		for _, n := range on {
			if asked[n] != "y" {
				t.Errorf("%s: %s is %q, want y", arch, n, asked[n])
			}
		}
		for _, n := range off {
			if asked[n] != "n" {
				t.Errorf("%s: %s is %q, want n", arch, n, asked[n])
			}
		}
	}
}

func TestUnknownArch(t *testing.T) {
	if _, err := Fragments("riscv"); err == nil || !strings.Contains(err.Error(), "x86_64, arm64") {
		t.Errorf("got %v", err)
	}
}

func TestLosses(t *testing.T) {
	want, err := ParseFragment("f", []byte(`CONFIG_KEPT=y
CONFIG_KEPT_OFF=n
CONFIG_ABSENT_OFF=n
CONFIG_TEXT="a,b"
CONFIG_NUMBER=16
CONFIG_DROPPED=y
CONFIG_STILL_ON=n
CONFIG_OTHER_TEXT="a"
CONFIG_OTHER_NUMBER=16
CONFIG_MISSPELT=n
`))
	if err != nil {
		t.Fatal(err)
	}
	got := `CONFIG_KEPT=y
# CONFIG_KEPT_OFF is not set
CONFIG_TEXT="a,b"
CONFIG_NUMBER=16
# CONFIG_DROPPED is not set
CONFIG_STILL_ON=y
CONFIG_OTHER_TEXT="b"
CONFIG_OTHER_NUMBER=8
CONFIG_NOT_ASKED=y
`
	known := map[string]bool{}
	for _, o := range want {
		if o.Name != "CONFIG_MISSPELT" {
			Symbols([]byte("config "+strings.TrimPrefix(o.Name, "CONFIG_")+"\n\tbool\n"), known)
		}
	}
	var lost []string
	for _, l := range Losses(want, []byte(got), known) {
		lost = append(lost, l.String())
	}
	wantLost := []string{
		"f:6: CONFIG_DROPPED: want y, got n",
		"f:7: CONFIG_STILL_ON: want n, got y",
		`f:8: CONFIG_OTHER_TEXT: want "a", got "b"`,
		"f:9: CONFIG_OTHER_NUMBER: want 16, got 8",
		"f:10: CONFIG_MISSPELT: this kernel has no such option",
	}
	if !slices.Equal(lost, wantLost) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lost, "\n"), strings.Join(wantLost, "\n"))
	}
}

func TestPackages(t *testing.T) {
	p := Packages()
	if len(p) == 0 || !slices.IsSorted(p) {
		t.Errorf("packages.txt is empty or not sorted: %v", p)
	}
}

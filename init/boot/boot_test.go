package boot

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/init/link"
)

// config is a boot configuration with one share.
func config() link.Boot {
	return link.Boot{
		UnixNano: time.Unix(1_800_000_100, 0).UnixNano(), Hostname: "box", ABI: 11,
		Shares: []link.Share{{Name: "w", Path: "/workspace", Source: "9p"}},
	}
}

// TestOrder is the order of everything PID 1 does to a VM, from its first
// step to its last.
func TestOrder(t *testing.T) {
	f := &fake{}
	h, code := runFake(t, f)
	c := config()
	h.send(link.Control{Boot: &c})
	h.until(func(m link.Control) bool { return m.Booted != nil })
	h.shutdown()
	if got := <-code; got != ExitOK {
		t.Errorf("exit code %d", got)
	}
	var got []string
	for _, call := range f.did() {
		if !strings.HasPrefix(call, "sysctl ") {
			got = append(got, call)
		} else if !slices.Contains(got, "sysctls") {
			got = append(got, "sysctls")
		}
	}
	want := []string{
		"mount /proc", "mount /sys", "mount /dev", "mount /run", "mount /tmp", "mount /sys/fs/cgroup",
		"mkdir /run/berth", "mkdir /run/berth/apps", "mkdir /run/berth/code", "mkdir /run/berth/shares",
		"sysctls", "audit", "loopback", "open link",
		"set clock 2027-01-15 08:01:40", "hostname box",
		"mkdir /run/berth/shares/w", "mount 9p /run/berth/shares/w", "measure memory",
		"unmount /run/berth/shares/w", "sync", "reboot",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEveryFatalStepIsToldAndEndsTheMachine lets one call after the other fail.
func TestEveryFatalStepIsToldAndEndsTheMachine(t *testing.T) {
	broken := errors.New("broken on purpose")
	for call, step := range map[string]string{
		"mount /proc":                   "mount /proc",
		"mount /sys/fs/cgroup":          "mount /sys/fs/cgroup",
		"mkdir /run/berth/code":         "folders",
		"sysctl vm/memfd_noexec":        "sysctls",
		"sysctl net/mptcp/enabled":      "sysctls",
		"audit":                         "kernel records",
		"loopback":                      "loopback",
		"set clock 2027-01-15 08:01:40": "clock",
		"hostname box":                  "hostname",
		"mount 9p /run/berth/shares/w":  "shares",
		"measure memory":                "booted",
	} {
		t.Run(call, func(t *testing.T) {
			f := &fake{fail: map[string]error{call: broken}}
			h, code := runFake(t, f)
			c := config()
			h.send(link.Control{Boot: &c})
			if got := h.failure(); got.Step != step || !strings.Contains(got.Reason, "broken on purpose") {
				t.Errorf("%+v", got)
			}
			if got := <-code; got != ExitFailed {
				t.Errorf("exit code %d", got)
			}
			did := f.did()
			if did[len(did)-1] != "reboot" {
				t.Errorf("the last call is %q", did[len(did)-1])
			}
			if !slices.ContainsFunc(did, func(s string) bool { return strings.HasPrefix(s, "console ") && strings.Contains(s, step) }) {
				t.Error("nothing on the console")
			}
		})
	}
}

func TestPanicIsToldAndEndsTheMachine(t *testing.T) {
	f := &fake{panics: "hostname box"}
	h, code := runFake(t, f)
	c := config()
	h.send(link.Control{Boot: &c})
	if got := h.failure(); got.Step != "panic" || !strings.Contains(got.Reason, "told to") || !strings.Contains(got.Reason, "steps.go") {
		t.Errorf("%+v", got)
	}
	if got := <-code; got != ExitFailed {
		t.Errorf("exit code %d", got)
	}
	if did := f.did(); did[len(did)-1] != "reboot" {
		t.Error(did)
	}
}

func TestWithoutAnyHostTheMachineEnds(t *testing.T) {
	f := &fake{fail: map[string]error{"open link": errors.New("no port")}}
	if code := Main(t.Context(), World{Args: []string{"vm"}, Stderr: &bytes.Buffer{}, System: f.system()}); code != ExitFailed {
		t.Error(code)
	}
	did := f.did()
	if did[len(did)-1] != "reboot" || !slices.Contains(did, "console init: step link failed: cannot open the link: no port") {
		t.Error(strings.Join(did, "\n"))
	}
}

// TestLinkIsOpenedAgain has a first host leave before it has spoken.
func TestLinkIsOpenedAgain(t *testing.T) {
	left, theirs := connected(t)
	first, err := asConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	_ = left.Close()
	f := &fake{conns: []link.Conn{first}}
	h, code := runFake(t, f)
	c := config()
	h.send(link.Control{Boot: &c})
	h.until(func(m link.Control) bool { return m.Booted != nil })
	_ = h.control.Close()
	m := h.until(func(m link.Control) bool { return m.Down != nil })
	if m.Down.Reason != "the host closed the control stream" {
		t.Error(m.Down.Reason)
	}
	<-code
}

func TestBootConfigurationIsChecked(t *testing.T) {
	for want, change := range map[string]func(*link.Boot){
		`share "../x": a name has`: func(b *link.Boot) { b.Shares[0].Name = "../x" },
		`share "w" twice`:          func(b *link.Boot) { b.Shares = append(b.Shares, b.Shares[0]) },
		"expects Landlock ABI 12":  func(b *link.Boot) { b.ABI = 12 },
		"errata 0xb, this kernel":  func(b *link.Boot) { b.Errata = 0b1011 },
		"64 shares, at most 62":    func(b *link.Boot) { b.Shares = make([]link.Share, 64) },
		`no source "floppy"`:       func(b *link.Boot) { b.Shares[0].Source = "floppy" },
		`share "w": no path given`: func(b *link.Boot) { b.Shares[0].Source = "bind" },
	} {
		t.Run(want, func(t *testing.T) {
			h, code := runFake(t, &fake{})
			c := config()
			change(&c)
			h.send(link.Control{Boot: &c})
			if got := h.failure(); !strings.Contains(got.Reason, want) {
				t.Errorf("%+v", got)
			}
			<-code
		})
	}
}

func TestFirstMessageMustBeBoot(t *testing.T) {
	h, code := runFake(t, &fake{})
	h.send(link.Control{Ping: &link.Ping{}})
	if got := h.failure(); got.Step != "boot configuration" || !strings.Contains(got.Reason, `"ping"`) {
		t.Errorf("%+v", got)
	}
	<-code
}

func TestClockFollowsTheHost(t *testing.T) {
	f := &fake{}
	h, code := runFake(t, f)
	c := config()
	c.UnixNano = time.Unix(1_800_000_000, 400_000_000).UnixNano() // off by less than it takes
	h.send(link.Control{Boot: &c})
	h.until(func(m link.Control) bool { return m.Booted != nil })
	h.send(link.Control{Time: &link.Time{UnixNano: time.Unix(1_800_000_060, 0).UnixNano()}})
	h.send(link.Control{Ping: &link.Ping{N: 1}})
	h.until(func(m link.Control) bool { return m.Pong != nil })
	var set []string
	for _, call := range f.did() {
		if strings.HasPrefix(call, "set clock") {
			set = append(set, call)
		}
	}
	if !slices.Equal(set, []string{"set clock 2027-01-15 08:01:00"}) {
		t.Error(set)
	}
	h.shutdown()
	<-code
}

func TestSysctls(t *testing.T) {
	refuses := func(path, value string) (string, error) { return "0", nil }
	lacks := func(path, value string) (string, error) { return "", fs.ErrNotExist }
	for name, c := range map[string]struct {
		sysctl   func(path, value string) (string, error)
		required bool
		want     string
	}{
		"stays as it was":     {refuses, true, `cannot set sysctl vm.memfd_noexec to "2": it stays "0"`},
		"stays, not required": {refuses, false, `it stays "0"`},
		"missing":             {lacks, true, "file does not exist"},
		"missing, may be":     {lacks, false, ""},
	} {
		p := &pid1{sys: &System{Sysctl: c.sysctl}}
		err := p.sysctl(sysctl{"vm/memfd_noexec", "2", c.required})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArguments(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "no profile given",
		"docker":               `no profile "docker"`,
		"native-root nonsense": "cannot read native configuration",
	} {
		var stderr bytes.Buffer
		if code := Main(t.Context(), World{Args: strings.Fields(args), Stderr: &stderr}); code != ExitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: %d, %s", args, code, stderr.String())
		}
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"filesystem": true, "a": true, "A-1_b.c": true, strings.Repeat("x", 64): true,
		"": false, ".": false, "..": false, ".x": false, "-x": false, "a/b": false, "a b": false, "é": false, strings.Repeat("x", 65): false, "a\x00": false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/init/policy"
)

// TestNetwork is about an app of class network that may bind and connect to one
// port each. What Landlock and seccomp refuse works without them.
func TestNetwork(t *testing.T) {
	actions := strings.Fields("listen:8080 connect:8080 listen:9090 connect:9090 connect6:9090 mapped:9090 outside:8080 fastopen:9090 mptcp:0 raw:0 ping:0 packet:0 netlink:0")
	// Where two answers are given, the second is that of Berth's kernel, which
	// has no MPTCP and whose Landlock sees TCP fast open.
	both := "listen:8080=ok connect:8080=ok outside:8080=ENETUNREACH "
	refused := "listen:9090=EACCES connect:9090=EACCES connect6:9090=EACCES mapped:9090=EACCES "
	sockets := "fastopen:9090=EPERM mptcp:0=EPERM raw:0=EPERM ping:0=EPERM packet:0=EPERM netlink:0=EPERM"
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		for _, c := range []struct{ ablate, want string }{
			{"", both + refused + sockets},
			{"landlock", both + "listen:9090=ok connect:9090=ok connect6:9090=ECONNREFUSED mapped:9090=ok " + sockets},
			{"seccomp", both + refused + "fastopen:9090=ENOTSUP|EACCES mptcp:0=ENOPROTOOPT|EPROTONOSUPPORT raw:0=EPERM ping:0=EACCES packet:0=EPERM|EAFNOSUPPORT netlink:0=ok"},
			// What seccomp and the sysctls close: connections that Landlock does not see.
			{"seccomp net-sysctls", both + refused + "fastopen:9090=ECONNREFUSED|EACCES mptcp:0=ok|EPROTONOSUPPORT raw:0=EPERM ping:0=EACCES packet:0=EPERM|EAFNOSUPPORT netlink:0=ok"},
		} {
			j := b.job(profile, append([]string{"-net"}, actions...)).withCgroup(t).with(t, func(p *policy.Policy) {
				p.Class, p.Connect, p.Bind = "network", []uint16{8080}, []uint16{8080}
			})
			j.Spec.Ablate = strings.Fields(c.ablate)
			o := start(t, j)
			got := map[string]string{}
			for line := range strings.Lines(o.Stdout) {
				action, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
				got[action] = answer
			}
			for _, pair := range strings.Fields(c.want) {
				action, want, _ := strings.Cut(pair, "=")
				if !slices.Contains(strings.Split(want, "|"), got[action]) {
					t.Errorf("%s without %q: %s: %q, want %s (%+v)", profile, c.ablate, action, got[action], want, o.failed())
				}
			}
		}
	}
}

// TestGrantedCanaryPort: with nearly every port granted, a canary still proves
// something.
func TestGrantedCanaryPort(t *testing.T) {
	profile := profiles[0]
	b := newBase(t, profile, "")
	j := b.job(profile, []string{"-net", "connect:9"}).withCgroup(t).with(t, func(p *policy.Policy) {
		p.Class, p.Connect = "network", nil
		for port := 1; port < 60000; port++ {
			p.Connect = append(p.Connect, uint16(port))
		}
	})
	if o := start(t, j); o.Stdout != "connect:9 ECONNREFUSED\n" {
		t.Errorf("%+v %q", o.failed(), o.Stdout)
	}
}

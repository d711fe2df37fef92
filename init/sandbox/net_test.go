package sandbox_test

import (
	"strings"
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// TestNetwork is about an app of class network that may bind and connect to one
// port each. What Landlock and seccomp refuse works without them.
func TestNetwork(t *testing.T) {
	actions := strings.Fields("listen:8080 connect:8080 listen:9090 connect:9090 connect6:9090 mapped:9090 outside:8080 fastopen:9090 mptcp:0 raw:0 ping:0 packet:0 netlink:0")
	cases := []struct {
		ablate []string
		want   string
	}{
		{nil, `listen:8080 ok, connect:8080 ok, listen:9090 EACCES, connect:9090 EACCES, connect6:9090 EACCES, mapped:9090 EACCES,
			outside:8080 ENETUNREACH, fastopen:9090 EPERM, mptcp:0 EPERM, raw:0 EPERM, ping:0 EPERM, packet:0 EPERM, netlink:0 EPERM`},
		{[]string{"landlock"}, `listen:8080 ok, connect:8080 ok, listen:9090 ok, connect:9090 ok, connect6:9090 ECONNREFUSED, mapped:9090 ok,
			outside:8080 ENETUNREACH, fastopen:9090 EPERM, mptcp:0 EPERM, raw:0 EPERM, ping:0 EPERM, packet:0 EPERM, netlink:0 EPERM`},
		{[]string{"seccomp"}, `listen:8080 ok, connect:8080 ok, listen:9090 EACCES, connect:9090 EACCES, connect6:9090 EACCES, mapped:9090 EACCES,
			outside:8080 ENETUNREACH, fastopen:9090 ENOTSUP, mptcp:0 ENOPROTOOPT, raw:0 EPERM, ping:0 EACCES, packet:0 EPERM, netlink:0 ok`},
		// The holes that seccomp and the sysctls close: connections that Landlock does not see.
		{[]string{"seccomp", "net-sysctls"}, `listen:8080 ok, connect:8080 ok, listen:9090 EACCES, connect:9090 EACCES, connect6:9090 EACCES, mapped:9090 EACCES,
			outside:8080 ENETUNREACH, fastopen:9090 ECONNREFUSED, mptcp:0 ok, raw:0 EPERM, ping:0 EACCES, packet:0 EPERM, netlink:0 ok`},
	}
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		for _, c := range cases {
			j := b.job(profile, append([]string{"-net"}, actions...)).withCgroup(t).with(t, func(p *policy.Policy) {
				p.Class, p.Connect, p.Bind = "network", []uint16{8080}, []uint16{8080}
			})
			j.Spec.Ablate = c.ablate
			o := start(t, j)
			want := strings.Join(strings.Fields(strings.ReplaceAll(c.want, ", ", ",")), "")
			got := strings.ReplaceAll(strings.TrimSpace(o.Stdout), "\n", ",")
			if strings.ReplaceAll(got, " ", "") != want {
				t.Errorf("%s without %v: %+v\ngot  %s\nwant %s", profile, c.ablate, o.failed(), got, c.want)
			}
		}
	}
}

// TestGrantedCanaryPort: with nearly every port granted, a canary still proves
// something.
func TestGrantedCanaryPort(t *testing.T) {
	b := newBase(t, sandbox.ProfileNativeUser, "")
	j := b.job(sandbox.ProfileNativeUser, []string{"-net", "connect:9"}).with(t, func(p *policy.Policy) {
		p.Class, p.Connect = "network", nil
		for port := 1; port < 60000; port++ {
			p.Connect = append(p.Connect, uint16(port))
		}
	})
	if o := start(t, j); o.Stdout != "connect:9 ECONNREFUSED\n" {
		t.Errorf("%+v %q", o.failed(), o.Stdout)
	}
}

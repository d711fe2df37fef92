package sandbox_test

import (
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

func TestSmoke(t *testing.T) {
	for _, profile := range []sandbox.Profile{sandbox.ProfileNativeUser, sandbox.ProfileNativeRoot} {
		t.Run(string(profile), func(t *testing.T) {
			b := newBase(t, profile, "")
			o := start(t, b.job(profile, []string{"-status"}, policy.Path{Path: "/workspace", Access: policy.Write}).withCgroup(t))
			for _, r := range o.Reports {
				t.Logf("%+v %+v %+v", r.Step, r.Failed, r.Enforced)
			}
			t.Log(o.Code, o.Stdout, o.Stderr)
		})
	}
}

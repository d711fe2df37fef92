package main

import (
	"bytes"
	"strings"
	"testing"
)

// use runs the program with an empty cache, no mirror and no checkout.
func use(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	env := map[string]string{"BERTH_CACHE": t.TempDir(), "BERTH_DEBIAN_MIRROR": t.TempDir()}
	var o, e bytes.Buffer
	code = run(t.Context(), world{args: args, out: &o, err: &e, getenv: func(k string) string { return env[k] }, pin: t.TempDir() + "/pin.json"})
	return code, o.String(), e.String()
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{
		{"-colour"}, {"extra"}, {"-o", "x"}, {"-no-cache"}, {"-jobs", "many"},
	} {
		code, out, errs := use(t, args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "-check-config") {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
	if code, _, errs := use(t, "-h"); code != exitDone || !strings.Contains(errs, "-arch") {
		t.Errorf("-h: exit code %d, stderr %q", code, errs)
	}
}

func TestFailures(t *testing.T) {
	cases := map[string]struct {
		args []string
		want []string
	}{
		"unknown architecture": {[]string{"-arch", "vax"}, []string{`cannot configure a kernel for "vax"`}},
		"no mirror":            {nil, []string{"cannot fetch linux-source-", "from any of 2 places", "\nhint: set BERTH_DEBIAN_MIRROR"}},
		"no checkout":          {[]string{"-update", "1.2.3-4"}, []string{"run in the root of the checkout"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code, out, errs := use(t, c.args...)
			if code != exitFailed || out != "" {
				t.Errorf("exit code %d, stdout %q", code, out)
			}
			for _, w := range c.want {
				if !strings.Contains(errs, w) {
					t.Errorf("stderr %q does not say %q", errs, w)
				}
			}
		})
	}
}

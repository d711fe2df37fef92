package userdir

import (
	"strings"
	"testing"

	"github.com/berthos/berth/host/hint"
)

func TestDir(t *testing.T) {
	for _, c := range []struct{ home, xdg, want string }{
		{"/home/me", "", "/home/me/.local/state/berth"},
		{"/home/me", "/state", "/state/berth"},
		{"/home/me", "relative", "/home/me/.local/state/berth"},
		{"", "/state", "/state/berth"},
		{"", "", ""},
		{"relative", "", ""},
	} {
		t.Setenv("HOME", c.home)
		t.Setenv("XDG_STATE_HOME", c.xdg)
		got, err := State.Dir()
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		if err != nil && !strings.Contains(hint.Of(err), "XDG_STATE_HOME") {
			t.Errorf("hint %q", hint.Of(err))
		}
	}
}

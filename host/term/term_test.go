package term_test

import (
	"testing"

	"github.com/berthos/berth/host/term"
)

func TestLines(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext":      "plain\ttext",
		"a\x1b[31m\u009bb": "a\uFFFD[31m\uFFFDb",
		"a\nb\rc":          "a\nb\uFFFDc",
		"x\u202ey":         "x\uFFFDy",
	} {
		if got := term.Lines(in); got != want {
			t.Errorf("Lines(%q) = %q, want %q", in, got, want)
		}
	}
	if got := term.Visible("a\nb"); got != "a\uFFFDb" {
		t.Errorf("Visible keeps a line break: %q", got)
	}
}

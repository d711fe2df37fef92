package imagebuild

import (
	"strings"
	"testing"

	"github.com/berthos/berth/host/hint"
)

func TestMissingToolsAreNamedAtOnce(t *testing.T) {
	if err := checkTools(); err != nil {
		t.Fatalf("control: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	err := checkTools()
	if err == nil || !strings.Contains(err.Error(), "gcc") || !strings.Contains(err.Error(), "pkg-config") {
		t.Fatalf("got %v", err)
	}
	if h := hint.Of(err); !strings.Contains(h, "apt-get install") || !strings.Contains(h, "libseccomp-dev") {
		t.Errorf("hint %q", h)
	}
}

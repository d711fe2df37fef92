package rootbuild

import (
	"strings"
	"testing"

	"github.com/berthos/berth/rootfs"
	"github.com/berthos/berth/tools/buildcache"
)

const module = "../.."

func programInputs(t *testing.T, tags string) Inputs {
	t.Helper()
	in, err := ProgramInputs(t.Context(), module, "x86_64", tags, []string{"filesystem"})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func key(in Inputs) string {
	var h buildcache.Hash
	in.AddTo(&h, "")
	return h.Sum()
}

// TestInputsAreWhatIsReached looks at both sides: what the guest's programs are
// made of is there, and what they do not reach is not.
func TestInputsAreWhatIsReached(t *testing.T) {
	in := programInputs(t, "")
	for _, name := range []string{
		"go", "manifest of filesystem",
		"file github.com/berthos/berth/init/boot/boot.go",
		"file github.com/berthos/berth/init/policy/policy.go",
		"file github.com/berthos/berth/apps/filesystem/main.go",
		"module github.com/landlock-lsm/go-landlock", "module github.com/hashicorp/yamux",
	} {
		if in[name] == "" {
			t.Errorf("%s is no input", name)
		}
	}
	for name := range in {
		for _, other := range []string{"berth/host/", "berth/tools/", "_test.go", "spf13/cobra"} {
			if strings.Contains(name, other) {
				t.Errorf("%s is an input", name)
			}
		}
	}
}

func TestKeyFollowsInputs(t *testing.T) {
	in := programInputs(t, "")
	before := key(in)
	if again := key(programInputs(t, "")); again != before {
		t.Error("the same sources have two keys")
	}
	if key(programInputs(t, "ablation")) == before {
		t.Error("build tags do not change the key")
	}
	in["file github.com/berthos/berth/init/boot/boot.go"] = "other"
	if key(in) == before {
		t.Error("a changed file does not change the key")
	}
}

func TestBusyboxInputs(t *testing.T) {
	in, err := BusyboxInputs(t.Context(), module, "x86_64")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(in["module github.com/u-root/u-root"], "v") || in["tags"] != rootfs.CommandTags {
		t.Errorf("inputs %v", in)
	}
	for name := range in {
		if strings.Contains(name, "charm") || strings.HasPrefix(name, "file ") {
			t.Errorf("%s is an input", name)
		}
	}
}

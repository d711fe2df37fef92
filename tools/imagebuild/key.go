package imagebuild

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/buildcache"
	"github.com/berthos/berth/tools/rootbuild"
	"github.com/berthos/berth/tools/verity"
)

// inputs is everything that an image depends on.
type inputs struct {
	kernel            index.Artifact
	busybox, programs rootbuild.Inputs
	filters           rootbuild.Inputs
	verity            string // version of veritysetup
	libseccomp        string // version
}

func gather(ctx context.Context, o Options) (inputs, error) {
	var in inputs
	var err error
	if in.kernel, err = artifact(o.Kernel.File, KernelFile); err != nil {
		return in, err
	}
	if in.busybox, err = rootbuild.BusyboxInputs(ctx, o.Module, o.Arch); err != nil {
		return in, err
	}
	if in.programs, err = rootbuild.ProgramInputs(ctx, o.Module, o.Arch, tags(o.Kind), o.Recipe.Apps); err != nil {
		return in, err
	}
	if in.filters, err = rootbuild.HostInputs(ctx, o.Module, rootbuild.FilterProgram); err != nil {
		return in, err
	}
	if in.verity, err = verity.Version(ctx); err != nil {
		return in, err
	}
	in.libseccomp, err = libseccompVersion(ctx)
	return in, err
}

func (in inputs) busyboxKey(o Options) string {
	var h buildcache.Hash
	h.Add("builder", o.Builder)
	in.busybox.AddTo(&h, "busybox ")
	return h.Sum()
}

func (in inputs) key(o Options) string {
	var h buildcache.Hash
	h.Add("busybox", in.busyboxKey(o))
	h.Add("kind", o.Kind)
	h.Add("recipe", fmt.Sprintf("%+v", o.Recipe))
	h.Add("kernel", in.kernel.SHA256)
	h.Add("kernel toolchain", fmt.Sprint(o.Kernel.Toolchain)) // maps print sorted
	h.Add("verity", in.verity)
	h.Add("libseccomp", in.libseccomp)
	in.programs.AddTo(&h, "program ")
	in.filters.AddTo(&h, "filter ")
	return h.Sum()
}

// toolchain is what the index says about how the image was made.
func (in inputs) toolchain(o Options) map[string]string {
	t := map[string]string{
		"go": in.programs["go"], "libseccomp": in.libseccomp, "veritysetup": in.verity,
		"u-root": version(in.busybox, "github.com/u-root/u-root"),
	}
	for name, value := range o.Kernel.Toolchain {
		t[name] = value
	}
	return t
}

// version returns the version of a module among the inputs.
func version(in rootbuild.Inputs, module string) string {
	v, _, _ := strings.Cut(in["module "+module], " ")
	return v
}

func libseccompVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "pkg-config", "--modversion", "libseccomp").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find libseccomp: pkg-config: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

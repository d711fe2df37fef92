package imagebuild

import (
	"os/exec"
	"strings"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/tools/verity"
)

// checkTools finds everything missing at once, before minutes are spent.
func checkTools() error {
	var missing, packages []string
	need := func(what, pkg string, err error) {
		if err != nil {
			missing, packages = append(missing, what), append(packages, pkg)
		}
	}
	_, err := verity.Find()
	need(verity.Tool, verity.Package, err)
	_, err = exec.LookPath("gcc")
	need("gcc (for the seccomp compiler)", "gcc libc6-dev", err)
	if _, err = exec.LookPath("pkg-config"); err != nil {
		need("pkg-config", "pkg-config libseccomp-dev", err)
	} else {
		need("libseccomp's headers", "libseccomp-dev", exec.Command("pkg-config", "--exists", "libseccomp").Run())
	}
	if len(missing) == 0 {
		return nil
	}
	return hint.Errorf("as root: apt-get install --no-install-recommends "+strings.Join(packages, " "),
		"cannot build image: missing %s", strings.Join(missing, ", "))
}

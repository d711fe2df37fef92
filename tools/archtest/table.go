// Package archtest holds the import directions of the repository as one table
// and the test that every package is in it and keeps to it.
package archtest

// rule says what the packages at or below a folder may import. The longest
// matching folder wins. Standard library imports are always allowed.
type rule struct {
	dir      string   // relative to the module root; matches itself and what is below
	guest    bool     // runs in the guest: no cgo, no init functions, no computed package variables
	internal []string // folders of this module (or below them); a package may always import below its own rule
	external []string // module path prefixes
}

const (
	xsys     = "golang.org/x/sys"
	yamux    = "github.com/hashicorp/yamux"
	landlock = "github.com/landlock-lsm/go-landlock"
	schema   = "github.com/google/jsonschema-go"
	yaml     = "github.com/goccy/go-yaml"
	cobra    = "github.com/spf13/cobra"
	erofs    = "github.com/erofs/go-erofs"
	p9       = "github.com/hugelgupf/p9"
)

// table is the architecture: formats first, then what transforms them, then
// what acts, then the programs.
var table = []rule{
	// Formats: leaves.
	{dir: "init/policy", guest: true},
	{dir: "init/seccomp", guest: true, external: []string{xsys}},
	{dir: "init/link", guest: true, external: []string{yamux}},
	{dir: "sdk/protocol", guest: true},
	{dir: "release/index"},
	{dir: "apps/appimage", guest: true, external: []string{xsys}},
	{dir: "kernel"},
	{dir: "rootfs"},

	// Manifest to policy: pure.
	{dir: "apps/manifest", external: []string{yaml, "golang.org/x/text/unicode/norm"}},
	{dir: "apps/compile", internal: []string{"apps/manifest", "init/policy"}},
	{dir: "apps/explain", internal: []string{"apps/manifest", "init/policy"}},

	// Guest.
	{dir: "init/cgroup", guest: true, internal: []string{"init/policy"}, external: []string{xsys}},
	{dir: "init/sandbox", guest: true, internal: []string{"init/policy", "init/seccomp", "init/cgroup"}, external: []string{xsys, landlock}},
	{dir: "init/audit", guest: true, external: []string{xsys}},
	{dir: "init/boot", guest: true, internal: []string{"init/audit", "init/policy", "init/link", "init/sandbox", "init/cgroup", "sdk/protocol", "apps/appimage"}, external: []string{xsys}},
	{dir: "init/cmd/init", guest: true, internal: []string{"init/boot"}, external: []string{xsys}},
	{dir: "init/cmd/agent-init", guest: true, internal: []string{"init/sandbox"}, external: []string{xsys}},
	{dir: "sdk/go", guest: true, internal: []string{"sdk/protocol"}, external: []string{schema, xsys}},
	{dir: "apps/attack", guest: true, internal: []string{"init/sandbox/probe", "sdk/protocol"}, external: []string{xsys}},
	{dir: "apps/filesystem", guest: true, internal: []string{"sdk/go", "sdk/protocol"},
		external: []string{xsys, "github.com/bmatcuk/doublestar/v4", "github.com/rogpeppe/go-internal/diff"}},

	// Build tools.
	{dir: "tools", internal: []string{"host/hint", "kernel", "rootfs", "release", "tools", "init/seccomp", "init/policy", "init/sandbox", "apps", "sdk"},
		external: []string{xsys, erofs, "github.com/u-root", "github.com/cavaliergopher/cpio", "github.com/klauspost/compress", "github.com/seccomp/libseccomp-golang", "golang.org/x/mod"}},

	{dir: "tools/bench", internal: []string{"host", "tools", "apps/appimage", "init/policy", "sdk"}},

	// Host.
	{dir: "host/hint"},
	{dir: "host/audit", internal: []string{"host/hint", "host/userdir"}, external: []string{xsys, "golang.org/x/mod/sumdb"}},
	{dir: "host/auditor", internal: []string{"host/audit", "host/hint", "host/machine/keeper"}, external: []string{xsys, landlock}},
	{dir: "host/term"},
	{dir: "host/userdir", internal: []string{"host/hint"}},
	{dir: "host/image", internal: []string{"release/index", "host/hint"}, external: []string{xsys}},
	{dir: "host/image/imagetest", internal: []string{"release/index", "host/image"}, external: []string{erofs}},
	{dir: "host/files", internal: []string{"host/hint", "host/userdir"}, external: []string{p9, xsys, "github.com/u-root/uio"}},
	{dir: "host/hostexecuted", internal: []string{"apps/manifest", "host/files", "host/hint", "host/userdir"}, external: []string{xsys}},
	{dir: "host/control", internal: []string{"init/link", "sdk/protocol"}},
	{dir: "host/appbuild", internal: []string{"apps", "init/policy", "host/hint"}},
	{dir: "host/grant", internal: []string{"apps/explain", "apps/manifest", "init/policy", "host/hint", "host/userdir"}, external: []string{xsys}},
	{dir: "host/syscalls", external: []string{xsys}, internal: []string{"init/seccomp"}},
	{dir: "host/denial", internal: []string{"apps/manifest", "host/syscalls", "init/policy", "sdk/protocol"}},
	{dir: "host/machine", internal: []string{"host/hint", "host/image", "release/index", "init"}, external: []string{xsys, erofs, landlock}},
	{dir: "host/sandbox", internal: []string{"host/audit", "host/hint", "host/machine", "host/image", "host/files", "host/syscalls", "host/denial", "apps/appimage", "init/link", "init/policy", "init/sandbox", "sdk/protocol", "release/index"}, external: []string{xsys}},
	{dir: "host/sandbox/choose", internal: []string{"host/hint", "host/userdir", "host/machine", "host/image", "host/sandbox", "apps/appimage", "init/policy"}, external: []string{xsys}},
	{dir: "host/monitor", internal: []string{"host/auditor", "host/hint", "host/term", "host/control", "host/image", "host/machine", "host/sandbox", "apps/appimage", "init/link", "init/policy"}, external: []string{xsys, landlock, "kernel.org/pub/linux/libs/security/libcap/psx"}},
	{dir: "host/attack", internal: []string{"host/hint", "host/image", "host/machine", "host/sandbox", "init", "sdk/protocol"}, external: []string{xsys}},
	{dir: "host/cli", internal: []string{"host", "apps", "init/policy", "init/link", "sdk/protocol", "release/index"}, external: []string{xsys, cobra, "github.com/fsnotify/fsnotify"}},
	{dir: "host/berth", internal: []string{"host"}},
}

// guestForbidden are modules that no guest program may link, not even
// indirectly: the CLI's and the MCP server's.
var guestForbidden = []string{cobra, yaml, "github.com/modelcontextprotocol", "github.com/fsnotify", "charm.land", p9}

// testExternal are modules that only tests may import, anywhere.
var testExternal = []string{
	"github.com/rogpeppe/go-internal", "go.uber.org/goleak", "pgregory.net/rapid",
	"github.com/elastic/go-seccomp-bpf", "golang.org/x/tools/txtar", "golang.org/x/net/bpf", xsys, erofs, p9, yaml,
	"gopkg.in/yaml.v3", // a second reader of manifests, to compare with
	"github.com/cavaliergopher/cpio", "github.com/vishvananda/netlink", landlock,
	"github.com/spf13/pflag", // of cobra: the flags that a manual must name
}

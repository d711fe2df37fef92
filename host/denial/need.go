package denial

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// Need is what would allow something that Landlock refused: a line of the
// manifest, or if there is none, Because says why.
type Need struct {
	Capability string
	Because    string
}

// Needed maps a record's rights and its object, in the names of /workspace, to
// the narrowest capability that carries them.
func Needed(blockers []string, object string) Need {
	n := Need{Because: "no manifest line allows it"}
	for i, b := range blockers {
		one := neededFor(b, object)
		if one.Capability == "" {
			return one
		}
		if i == 0 || isWrite(one.Capability) {
			n = one
		}
	}
	return n
}

func isWrite(capability string) bool { return strings.HasPrefix(capability, "filesystem:write:") }

func neededFor(blocker, object string) Need {
	kind, right, _ := strings.Cut(blocker, ".")
	switch kind {
	case "fs":
		return neededOn(right, object)
	case "net":
		return neededPort(right, object)
	case "scope":
		return Need{Because: "an app reaches no process outside its own domain"}
	case "ptrace":
		return Need{Because: "no app may look into another process"}
	}
	return Need{Because: "no manifest line allows it"}
}

func neededOn(right, object string) Need {
	folder, access := path.Dir(object), policy.Write
	terminal := object == "/dev/ptmx" || object == "/dev/tty" || policy.Below(object, "/dev/pts")
	switch {
	case terminal && (right == "ioctl_dev" || right == "read_file" || right == "write_file"):
		return Need{Capability: "terminal:attach:*"}
	case right == "execute":
		return Need{Because: "an app executes what its runtime needs and its own files in /app"}
	case right == "make_char" || right == "make_block":
		return Need{Because: "no app may make devices"}
	case right == "resolve_unix":
		return Need{Because: "an app reaches no unix socket that others made"}
	case right == "ioctl_dev":
		return Need{Because: "an app controls no device"}
	case inFolder(right):
		folder = object
	case right == "read_dir":
		folder, access = object, policy.Read
	case right == "read_file":
		access = policy.Read
	case right != "write_file" && right != "truncate":
		return Need{Because: "no manifest line allows it"}
	}
	return neededScope(access, folder)
}

// neededScope is the capability for a folder, or, since an app chooses names, for
// the innermost one around it that a manifest can name.
func neededScope(access policy.Access, folder string) Need {
	for _, root := range []string{"/workspace", "/tmp"} {
		for at := folder; policy.Below(at, root); at = path.Dir(at) {
			c := fmt.Sprintf("filesystem:%s:%s", access, at)
			if _, err := manifest.ParseCapability(c); err == nil {
				return Need{Capability: c}
			}
		}
	}
	if policy.Below(folder, "/app") {
		return Need{Because: "an app cannot change its own code"}
	}
	return Need{Because: noFix}
}

func neededPort(right, object string) Need {
	verb := "connect"
	if strings.HasPrefix(right, "bind_") {
		verb = "bind"
	}
	_, port, ok := splitPort(object)
	switch {
	case ok && port != 0:
		return Need{Capability: fmt.Sprintf("network:%s:%d", verb, port)}
	case ok && right == "bind_udp": // the kernel's choice, for a socket that only sends
		return Need{Because: "a free port comes with the network:connect line of the port that is sent to"}
	}
	return Need{Because: "a capability names one port, and port 0 is none"}
}

// splitPort returns the host and port of an address.
func splitPort(address string) (host string, port uint16, ok bool) {
	host, name, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name, 10, 16)
	return host, uint16(n), err == nil
}

// NeededCall says what would allow a system call that the filter of a class
// refused. What it refuses depends on arguments that no record has.
func NeededCall(name, class string) string {
	if name == "socket" && (class == policy.ClassBase || class == policy.ClassTerminal) {
		return "sockets of TCP and UDP come with a network:connect or network:bind line"
	}
	return "no manifest line allows it"
}

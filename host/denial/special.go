package denial

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/syscalls"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

// network explains a refused connect, send or bind. The port is in the address
// that the app names, else in the kernel's record.
func (c Context) network(e protocol.Error) (Denial, bool) {
	if e.Errno != "EACCES" && e.Errno != "EPERM" {
		return Denial{}, false
	}
	verbs := verbsOf(e.Op)
	port, ok := c.portOf(e)
	if len(verbs) == 0 || !ok {
		return Denial{}, false
	}
	d := Denial{Denied: call(e), By: c.landlock(e)}
	if e.Errno == "EPERM" {
		d.By = c.notPermitted(e).By
	}
	var lines []string
	for _, verb := range verbs {
		granted := c.Policy.Connect
		if verb == "bind" {
			granted = c.Policy.Bind
		}
		if slices.Contains(granted, port) {
			return Denial{}, false
		}
		lines = append(lines, fmt.Sprintf("\"network:%s:%d\"", verb, port))
	}
	d.Rule = fmt.Sprintf("no network:%s capability covers port %d", strings.Join(verbs, " or network:"), port)
	d.Fix = c.mayAdd(strings.Join(lines, ", or to listen "))
	if port == 0 {
		d.Fix = "none available: a capability names one port"
	}
	return d, true
}

// verbsOf lists which capabilities a call is about. A socket that may not even
// be made does not say what for.
func verbsOf(op string) []string {
	switch op {
	case "dial", "connect", "sendto", "sendmsg", "sendmmsg":
		return []string{"connect"}
	case "listen", "bind":
		return []string{"bind"}
	case "socket":
		return []string{"connect", "bind"}
	}
	return nil
}

func (c Context) portOf(e protocol.Error) (uint16, bool) {
	if _, port, ok := splitPort(e.Path); ok {
		return port, true
	}
	var found []uint16
	for _, r := range c.Records.List {
		if len(r.Blockers) > 0 && strings.HasPrefix(r.Blockers[0], "net.") && syscalls.Same(e.Op, r.call()) {
			if _, port, ok := splitPort(r.Object); ok && !slices.Contains(found, port) {
				found = append(found, port)
			}
		}
	}
	if len(found) != 1 {
		return 0, false // none, or not known which
	}
	return found[0], true
}

// byName explains a change that the share refused because of the name: a
// policy that grants the folder does not grant these.
func (c Context) byName(e protocol.Error) (Denial, bool) {
	guest := c.guestPath(e.Path)
	share, shared := c.share(guest)
	grant, granted := policy.Covers(c.Policy, guest, false)
	refused := e.Errno == "EACCES" || e.Errno == "EROFS" || e.Errno == "EPERM" || e.Errno == "EBUSY"
	if !refused || !shared || !granted || e.Access == protocol.AccessRead {
		return Denial{}, false
	}
	d := Denial{Denied: call(e)}
	rel := strings.TrimPrefix(guest[len(share.Path):], "/")
	switch {
	case c.Excluded != nil && c.Excluded(share.Exclude, rel):
		d.By = "the shared folder: this name is excluded (" + e.Errno + ")" + c.reported(guest)
		d.Rule = "this sandbox was started with --exclude " + quote(strings.Join(share.Exclude, " --exclude "))
		d.Fix = "the owner of this sandbox may start it without; retrying will not help"
	case share.ReadOnly || grant.Access != policy.Write:
		return Denial{}, false
	case c.HostExecuted != nil && c.HostExecuted(rel):
		d.By = "the shared folder: programs of the host execute what has this name (" + e.Errno + ")" + c.reported(guest)
		d.Rule = fmt.Sprintf("filesystem:write:%s covers %s, but names such as .git/hooks, .envrc and .vscode are read-only in a shared folder", grant.Path, quote(e.Path))
		d.Fix = c.fixName()
	default:
		return c.elsewhere(e, share, grant)
	}
	return d, true
}

// elsewhere explains a change that the file server refused under a name that
// the app did not say: a link on the path led there, or it was a rename.
func (c Context) elsewhere(e protocol.Error, share Share, grant policy.Path) (Denial, bool) {
	if _, recorded := c.tied(e); recorded || e.Errno != "EACCES" {
		return Denial{}, false
	}
	for _, r := range c.Refused {
		if !policy.Below(r.Path, share.Path) {
			continue
		}
		return Denial{
			Denied: call(e),
			By:     fmt.Sprintf("the shared folder: %s (%s)%s", r.Why, e.Errno, c.said(r)),
			Rule:   fmt.Sprintf("filesystem:write:%s covers %s, but what it comes to is %s, which is read-only in a shared folder", grant.Path, quote(e.Path), quote(r.Path)),
			Fix:    c.fixName(),
		}, true
	}
	return Denial{}, false
}

// fixName is for the owner alone: it needs an approval from a terminal.
func (c Context) fixName() string {
	return fmt.Sprintf("the owner of the folder may make this change on the host, or add the name to host_executed in %s and approve it; retrying will not help", c.Manifest)
}

// reported says that the file server said so itself.
func (c Context) reported(guest string) string {
	for _, r := range c.Refused {
		if policy.Below(guest, r.Path) {
			return c.said(r)
		}
	}
	return ""
}

func (c Context) said(r Refusal) string {
	in := ""
	if c.Records.Calls > 1 {
		in = fmt.Sprintf(", in one of %d calls in flight", c.Records.Calls)
	}
	return fmt.Sprintf(", reported by the file server (%s of %s%s)", quote(r.Op), quote(r.Path), in)
}

// besideShares explains a change in /workspace itself when it only holds the
// folders that were shared below it.
func (c Context) besideShares(e protocol.Error) (Denial, bool) {
	guest := c.guestPath(e.Path)
	if _, shared := c.share(guest); shared || e.Errno != "EROFS" {
		return Denial{}, false
	}
	var held []string
	for _, s := range c.Shares {
		if strings.HasPrefix(s.Path, path.Dir(guest)+"/") {
			held = append(held, s.Path)
		}
	}
	if _, granted := policy.Covers(c.Policy, guest, false); !granted || len(held) == 0 {
		return Denial{}, false
	}
	return Denial{
		Denied: call(e),
		By:     "the root filesystem is read-only (EROFS)",
		Rule:   fmt.Sprintf("%s holds only the shared folders %s", quote(path.Dir(guest)), quote(strings.Join(held, ", "))),
		Fix:    "name a path below one of them; retrying will not help",
	}, true
}

// terminal explains a terminal that does not exist for the app: one is mounted
// for who may attach.
func (c Context) terminal(e protocol.Error) (Denial, bool) {
	guest := c.guestPath(e.Path)
	if e.Errno != "ENOENT" || c.Policy.Terminal || guest != "/dev/ptmx" && !policy.Below(guest, "/dev/pts") {
		return Denial{}, false
	}
	return Denial{
		Denied: call(e),
		By:     fmt.Sprintf("the mount namespace of %s, in which there are no terminals (%s)", c.who(), Inferred),
		Rule:   "no terminal:attach capability",
		Fix:    c.mayAdd("\"terminal:attach:*\""),
	}, true
}

// invocation explains a call of another app that was not made.
func (c Context) invocation(e protocol.Error) (Denial, bool) {
	app, export, whole := strings.Cut(e.Path, ".")
	line := "app:invoke:" + e.Path
	if _, err := manifest.ParseCapability(line); err != nil || !whole || c.Policy.Invokes(app, export) {
		return Denial{}, false
	}
	return Denial{
		Denied: fmt.Sprintf("a call of export %q of app %q", export, app),
		By:     fmt.Sprintf("Berth, which hands %s no such connection, %s, policy sha256 %s", c.who(), Inferred, short(c.Digest)),
		Rule:   fmt.Sprintf("no app:invoke capability covers %s.%s", app, export),
		Fix:    c.mayAdd(strconv.Quote(line)),
	}, true
}

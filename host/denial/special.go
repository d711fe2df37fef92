package denial

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

// network explains a refused connect or bind: the object is an address.
func (c Context) network(e protocol.Error) (Denial, bool) {
	if e.Errno != "EACCES" && e.Errno != "EPERM" {
		return Denial{}, false
	}
	verb, ports := "connect", c.Policy.Connect
	switch e.Op {
	case "dial", "connect", "sendto", "sendmsg":
	case "listen", "bind":
		verb, ports = "bind", c.Policy.Bind
	default:
		return Denial{}, false
	}
	_, name, err := net.SplitHostPort(e.Path)
	if err != nil {
		return Denial{}, false
	}
	port, err := strconv.ParseUint(name, 10, 16)
	if err != nil || slices.Contains(ports, uint16(port)) {
		return Denial{}, false
	}
	d := Denial{Denied: call(e), By: c.landlock(e), Rule: fmt.Sprintf("no network:%s capability covers port %d", verb, port)}
	if e.Errno == "EPERM" {
		d.By = c.notPermitted(e).By
	}
	d.Fix = fmt.Sprintf("the owner of this sandbox may add \"network:%s:%d\" to %s and start it again; retrying will not help", verb, port, c.Manifest)
	return d, true
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
	if e.Errno != "EACCES" || c.recorded(e) {
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

package denial

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/berthos/berth/host/syscalls"
	"github.com/berthos/berth/sdk/protocol"
)

// Record is one denial that the kernel recorded of the app.
type Record struct {
	Blockers []string // rights of Landlock that were missing; empty: the system call filter's
	Arch     string   // of the system call
	Syscall  int      // its number
	Exit     int64    // what it returned; 0: not known
	Object   string   // a path as the app sees it, for a create the folder; or an address, or a process
}

// String is a record in a sentence: "fs.make_reg on /tmp".
func (r Record) String() string {
	if len(r.Blockers) == 0 {
		return quote(r.call()) + " by the filter"
	}
	what := quote(strings.Join(r.Blockers, ",")) // the guest's words
	if r.Object != "" {
		what += " on " + quote(r.Object)
	}
	return what
}

// call is the name of the system call.
func (r Record) call() string { return syscalls.Name(r.Arch, r.Syscall) }

// Records is what the kernel recorded while the call ran.
type Records struct {
	// Kept: this machine reads the kernel's records; else every explanation is
	// inferred.
	Kept bool
	// Complete: what is not in List was not recorded, or is counted as Missing.
	Complete bool
	Missing  uint64 // suppressed or lost
	List     []Record
	Calls    int // of the process, in flight meanwhile
}

// match is a record that is about a refusal, and the place that it is about:
// another than the app named if a symbolic link on the path led there.
type match struct {
	record Record
	place  string
}

// tied returns the record of what the app says it was refused.
func (c Context) tied(e protocol.Error) (match, bool) {
	for _, r := range c.Records.List {
		if place, ok := c.matches(r, e); ok {
			return match{r, place}, true
		}
	}
	return match{}, false
}

// evidence returns the words for what stands behind the explanation.
func (c Context) evidence(e protocol.Error) string {
	rs := c.Records
	if m, ok := c.tied(e); ok {
		if rs.Calls > 1 {
			return fmt.Sprintf("%s (%s, in one of %d calls in flight)", Recorded, m.record, rs.Calls)
		}
		return fmt.Sprintf("%s (%s)", Recorded, m.record)
	}
	switch {
	case !rs.Kept:
		return string(Inferred)
	case rs.Missing > 0:
		return fmt.Sprintf("%s (%d records of the kernel were suppressed or lost)", Inferred, rs.Missing)
	case !rs.Complete:
		return string(Inferred) + " (the kernel's records did not come in time)"
	case len(rs.List) > 0:
		return fmt.Sprintf("%s (meanwhile %s: %s, which may be something else)", Inferred, Recorded, rs.List[0])
	}
	return string(Inferred) + " (no record of the kernel was found)"
}

// matches says whether a record is about what the app says it was refused, and
// about which place. It asks for more than the time: the object, the kind of
// right and the error, or for what has no object the system call.
func (c Context) matches(r Record, e protocol.Error) (place string, ok bool) {
	if len(r.Blockers) == 0 {
		return "", e.Errno == "EPERM" && syscalls.Same(e.Op, r.call())
	}
	if number := errnos[e.Errno]; r.Exit != 0 && r.Exit != -number {
		return "", false
	}
	switch kind, _, _ := strings.Cut(r.Blockers[0], "."); kind {
	case "fs":
		return c.matchesPath(r, e)
	case "net":
		if e.Path == "" { // the app does not say where to
			return "", e.Op != "" && syscalls.Same(e.Op, r.call())
		}
		return "", matchesAddress(r.Object, e.Path)
	}
	return "", e.Op != "" && syscalls.Same(e.Op, r.call())
}

// errnos are those that Landlock answers with.
var errnos = map[string]int64{"EPERM": 1, "EACCES": 13, "EXDEV": 18}

// matchesPath wants the path itself, or the folder in which a name would have
// been made or removed, and a right of the kind that the app wanted.
func (c Context) matchesPath(r Record, e protocol.Error) (string, bool) {
	if r.Object == "" || e.Path == "" {
		return "", false
	}
	at := c.guestPath(r.Object)
	for _, place := range c.places(e.Path) {
		if slices.ContainsFunc(r.Blockers, func(b string) bool {
			right, _ := strings.CutPrefix(b, "fs.")
			switch {
			case reads(right) && e.Access == protocol.AccessWrite, !reads(right) && e.Access == protocol.AccessRead:
				return false
			case inFolder(right):
				return at == path.Dir(place) || at == place
			}
			return at == place
		}) {
			return place, true
		}
	}
	return "", false
}

// reads names the rights that reading takes.
func reads(right string) bool { return strings.HasPrefix(right, "read_") || right == "execute" }

// inFolder names the rights whose record names the folder of what they are about.
func inFolder(right string) bool {
	return strings.HasPrefix(right, "make_") || strings.HasPrefix(right, "remove_") || right == "refer"
}

// matchesAddress compares addresses, and of a name that the app said instead
// the port.
func matchesAddress(object, name string) bool {
	if host, port, ok := splitPort(object); ok && host == "" { // the kernel leaves out zeros
		object = netip.AddrPortFrom(netip.IPv4Unspecified(), port).String()
	}
	at, err := netip.ParseAddrPort(object)
	if err != nil {
		return false
	}
	if said, err := netip.ParseAddrPort(name); err == nil {
		same := at.Addr().Unmap() == said.Addr().Unmap() || at.Addr().IsUnspecified() && said.Addr().IsUnspecified()
		return at.Port() == said.Port() && same
	}
	_, port, ok := splitPort(name)
	return ok && port == at.Port()
}

// maxLinks bounds the symbolic links that are followed on one path, as the
// kernel does.
const maxLinks = 40

// places lists where a path that the app named may lead: itself, and with the
// links of shared folders followed, but for the last name and with it.
func (c Context) places(name string) []string {
	guest := c.guestPath(name)
	parent := path.Join(c.follow(path.Dir(guest)), path.Base(guest))
	return []string{guest, parent, c.follow(parent)}
}

// follow resolves the symbolic links of shared folders on a path. What it cannot
// look at it takes for no link.
func (c Context) follow(guest string) string {
	if c.Readlink == nil {
		return guest
	}
	done, rest := "/", strings.TrimPrefix(guest, "/")
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		here := path.Join(done, name)
		share, shared := c.share(here)
		if !shared || here == share.Path {
			done = here
			continue
		}
		target, isLink := c.Readlink(share, strings.TrimPrefix(here, share.Path+"/"))
		if !isLink || links == maxLinks {
			done = here
			continue
		}
		links++
		if path.IsAbs(target) {
			done = "/"
		}
		// ".." goes up from where the link lies, which holds no links any more.
		rest = strings.TrimPrefix(c.guestPath(path.Join(done, target, rest)), "/")
		done = "/"
	}
	return done
}

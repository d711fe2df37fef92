package denial

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berthos/berth/sdk/protocol"
)

// Record is one denial that the kernel recorded of the app.
type Record struct {
	Blockers []string // rights of Landlock that were missing; empty: the system call filter's
	Syscall  int      // its number
	Object   string   // a path as the app sees it, for a create the folder; or an address
}

// String is a record in a sentence: "fs.make_reg on /tmp".
func (r Record) String() string {
	if len(r.Blockers) == 0 {
		return fmt.Sprintf("system call %d by the filter", r.Syscall)
	}
	what := strings.Join(r.Blockers, ",")
	if r.Object != "" {
		what += " on " + quote(r.Object)
	}
	return what
}

// Records is what the kernel recorded while the call ran.
type Records struct {
	// Kept: this machine reads the kernel's records; else every explanation is
	// inferred.
	Kept bool
	// Complete: what is not in List was not recorded, or is counted as Missing.
	Complete bool
	Missing  uint64 // suppressed or lost
	List     []Record
	Calls    int // of the app, in flight meanwhile
}

// evidence returns the words for what stands behind the explanation of a denial
// by Landlock.
func (c Context) evidence(e protocol.Error) string {
	rs := c.Records
	for _, r := range rs.List {
		if len(r.Blockers) > 0 && c.matches(r, e) {
			if rs.Calls > 1 {
				return fmt.Sprintf("%s (%s, in one of %d calls in flight)", Recorded, r, rs.Calls)
			}
			return fmt.Sprintf("%s (%s)", Recorded, r)
		}
	}
	switch {
	case !rs.Kept:
		return string(Inferred)
	case rs.Missing > 0:
		return fmt.Sprintf("%s (%d records of the kernel were suppressed or lost)", Inferred, rs.Missing)
	case !rs.Complete:
		return string(Inferred) + " (the kernel's records did not come in time)"
	}
	return string(Inferred) + " (no record of the kernel was found)"
}

// filterEvidence returns the words for what stands behind EPERM. A record of the
// filter has the call's number and the app a name, so they are not matched.
func (c Context) filterEvidence() string {
	for _, r := range c.Records.List {
		if len(r.Blockers) == 0 {
			return fmt.Sprintf("%s (meanwhile %s: %s)", Inferred, Recorded, r)
		}
	}
	return string(Inferred)
}

// recorded says whether the kernel recorded that Landlock refused e.
func (c Context) recorded(e protocol.Error) bool {
	return slices.ContainsFunc(c.Records.List, func(r Record) bool { return len(r.Blockers) > 0 && c.matches(r, e) })
}

// matches says whether a record is about what the app says it was refused: the
// path itself, or the folder in which a name would have been made or removed,
// and a right of the kind that it wanted.
func (c Context) matches(r Record, e protocol.Error) bool {
	if r.Object == "" || e.Path == "" {
		return false
	}
	if r.Object == e.Path && strings.HasPrefix(r.Blockers[0], "net.") {
		return true
	}
	about, at := c.guestPath(e.Path), c.guestPath(r.Object)
	return slices.ContainsFunc(r.Blockers, func(b string) bool {
		right, ok := strings.CutPrefix(b, "fs.")
		inFolder := strings.HasPrefix(right, "make_") || strings.HasPrefix(right, "remove_") || right == "refer"
		reads := strings.HasPrefix(right, "read_") || right == "execute"
		switch {
		case !ok || reads && e.Access == protocol.AccessWrite || !reads && e.Access == protocol.AccessRead:
			return false
		case inFolder:
			return at == path.Dir(about) || at == about
		}
		return at == about
	})
}

package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthos/berth/host/audit"
	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/files/watch"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/init/link"
)

// Name is what happened to a name of a share that hosts execute, or that is
// excluded: a change of it was refused, or where nobody could refuse, it was
// made. Whether an app or a program of the host made it, nobody can say.
type Name struct {
	At      time.Time `json:"at"`
	HostDir string    `json:"host_dir"`
	Place   string    `json:"place"`   // below HostDir
	Op      string    `json:"op"`      // what was tried, or what was found: "create", "made", "replaced", "fifo"
	Refused bool      `json:"refused"` // else it is there
	Why     string    `json:"why"`     // a sentence
}

// String is one line.
func (n Name) String() string {
	if n.Refused {
		return fmt.Sprintf("refused: %s %s in %s: %s", n.Op, n.Place, n.HostDir, n.Why)
	}
	return fmt.Sprintf("not refused: %s in %s: %s", n.Place, n.HostDir, n.Why)
}

// Limits of what is kept and logged; a guest can cause any number.
const (
	keptNames   = 512
	namesLogged = 20 // lines a second
)

// names keeps the last of them.
type names struct {
	watchers []*watch.Watcher

	mu      sync.Mutex // guards what follows
	kept    []Name
	cut     time.Time // those up to then are forgotten
	second  int64     // of the clock, in which were logged
	logged  int64     // so many
	skipped int64     // were not logged since the last line
}

// Names is what happened since a time.
type Names struct {
	List []Name `json:"list"`
	Cut  bool   `json:"cut,omitempty"` // there was more
}

// Names returns what happened to names of the shares since a time of this
// host's clock. What an app did before its answer is in it.
func (s *Sandbox) Names(since time.Time) (out Names) {
	for _, w := range s.names.watchers {
		w.Drain()
	}
	n := &s.names
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, have := range n.kept {
		if !have.At.Before(since) {
			out.List = append(out.List, have)
		}
	}
	out.Cut = !n.cut.Before(since)
	return out
}

const (
	whyExecuted = "programs of this host execute what has this name"
	whyExcluded = "the name is excluded"
)

// onName keeps, tells and logs one. It does not block.
func (s *Sandbox) onName(name Name) {
	name.At = time.Now()
	if name.Why == "" {
		name.Why = whyExecuted
		for _, sh := range s.shares {
			if sh.HostDir == name.HostDir && files.Excluded(sh.Exclude, name.Place) {
				name.Why = whyExcluded
			}
		}
	}
	s.emit(Event{Name: &name})
	if log, ok := s.names.keep(name); ok {
		s.logs.add(log)
		s.noteFor("", nameRecord(name))
		if log.Dropped > 0 {
			s.noteFor("", audit.Record{Kind: audit.KindLoss, Count: log.Dropped, Reason: "records of names were suppressed: a flood"})
		}
	}
}

// keep returns the line for the log, if there may be one more in this second.
func (n *names) keep(name Name) (link.LogRecord, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, name)
	if len(n.kept) > keptNames {
		n.cut, n.kept = n.kept[0].At, n.kept[1:]
	}
	if now := name.At.Unix(); now != n.second {
		n.second, n.logged = now, 0
	}
	if n.logged++; n.logged > namesLogged {
		n.skipped++
		return link.LogRecord{}, false
	}
	r := link.LogRecord{Stream: LogNames, Line: name.String(), Dropped: n.skipped}
	n.skipped = 0
	return r, true
}

// LogNames is the stream of log records about names.
const LogNames = "share"

// watchNames follows the shares of a machine that mounts them: there a name that
// did not exist at the start can be made, and is reported.
func (s *Sandbox) watchNames(ctx context.Context) error {
	if s.o.Machine.ShareSource() != machine.SourceBind {
		return nil
	}
	for _, sh := range s.shares {
		if sh.ReadOnly {
			continue
		}
		w, err := s.watchShare(ctx, sh)
		if err != nil {
			return fmt.Errorf("cannot watch %s for names that hosts execute: %w", sh.HostDir, err)
		}
		s.names.watchers = append(s.names.watchers, w)
		if missed := w.Missed(); missed != "" {
			s.notes = append(s.notes, sh.HostDir+": "+missed)
		}
	}
	return nil
}

// close ends the watching, after a last look.
func (n *names) close() {
	for _, w := range n.watchers {
		w.Drain()
		w.Close()
	}
}

// watchShare reports what some process may not change. Where one app may and
// another may not, nobody can say whose doing it was.
func (s *Sandbox) watchShare(ctx context.Context, sh share) (*watch.Watcher, error) {
	protected, err := files.Matcher(sh.watched())
	if err != nil {
		return nil, err
	}
	return watch.Start(ctx, watch.Options{
		Root: sh.HostDir, Wanted: protected, Covered: sh.views[0].places.Protected,
		Found: func(f watch.Found) {
			s.onName(Name{HostDir: sh.HostDir, Place: f.Place, Op: string(f.What), Why: foundWhy[f.What]})
		},
	})
}

// watched are the names of the first view, unless every process has another.
func (sh share) watched() []string {
	for _, v := range sh.views {
		if v.used {
			return v.protect
		}
	}
	return sh.views[0].protect
}

var foundWhy = map[watch.What]string{
	watch.Made:     "made by an app or a program of this host; " + whyExecuted + ", and this machine cannot refuse what did not exist at the start",
	watch.Replaced: "replaced by a program of this host, so it is no longer read-only for the apps; " + whyExecuted,
	watch.FIFO:     "a FIFO was made by an app or a program of this host; a program that opens it waits",
	watch.Lost:     "there were more changes than could be followed; what is found there now is reported, what came and went is not",
}

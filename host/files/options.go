//go:build linux

package files

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"github.com/berthos/berth/host/hint"
	"golang.org/x/sys/unix"
)

// Options say what of the host a session may touch, and as whom.
type Options struct {
	// Root is the folder. It is opened once, when Serve starts.
	Root string
	// ReadOnly refuses every change with EROFS.
	ReadOnly bool
	// Exclude are names, or patterns of one name (path.Match), that do not
	// exist for the guest at any depth. They are compared without case.
	Exclude []string
	// HostExecuted are names that hosts execute, which the guest may not change;
	// nil: the default list.
	HostExecuted []string
	// UID and GID are the ids under which the owner's files appear in the
	// guest; all others appear as 65534.
	UID, GID uint32
	// Refused, if set, is told of every change that was refused because of a
	// name: the operation and the place below Root. It is called from several
	// goroutines and must not block; a guest can cause any number of calls.
	Refused func(op, name string)
	// Logger gets what an operator would want to know; nil is silence.
	Logger *slog.Logger

	// MaxFIDs bounds the handles of a session (0: 65536), MaxOpen the file
	// descriptors of the host that they may cost (0: 16384). All sessions of
	// the process together hold at most half of what it may open.
	MaxFIDs, MaxOpen int
}

const (
	defaultFIDs = 1 << 16
	defaultOpen = 1 << 14
	minOpen     = 64
	nobody      = 65534 // what the guest sees where it has no name for an owner
)

// checked returns a copy with the defaults filled in.
func (o Options) checked() (Options, *names, error) {
	if o.Root == "" {
		return o, nil, errors.New("cannot serve files: no folder given")
	}
	if o.UID >= wire.NoID || o.GID >= wire.NoID {
		return o, nil, fmt.Errorf("cannot serve %s: %d:%d are no ids", o.Root, o.UID, o.GID)
	}
	if o.MaxFIDs < 0 || o.MaxOpen < 0 || o.MaxOpen > 0 && o.MaxOpen < minOpen {
		return o, nil, fmt.Errorf("cannot serve %s: limits of %d handles and %d open files: at least %d files are needed", o.Root, o.MaxFIDs, o.MaxOpen, minOpen)
	}
	o.Exclude = slices.Clone(o.Exclude)
	if o.HostExecuted == nil {
		o.HostExecuted = HostExecutedNames()
	}
	n, err := newNames(o.Exclude, o.HostExecuted)
	if err != nil {
		return o, nil, err
	}
	if o.MaxFIDs == 0 {
		o.MaxFIDs = defaultFIDs
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = defaultOpen
	}
	if o.Refused == nil {
		o.Refused = func(string, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, n, nil
}

// budget is what all sessions of this process may hold open together: a guest
// can open several, and the program has files of its own.
var budget = sync.OnceValues(func() (*beneath.Budget, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return nil, fmt.Errorf("cannot read the limit on open files: %w", err)
	}
	half := int(min(lim.Cur/2, 1<<20))
	if half < minOpen {
		return nil, hint.Errorf("raise it: ulimit -n 4096", "cannot serve files: this process may open %d files only", lim.Cur)
	}
	return beneath.NewBudget(half), nil
})

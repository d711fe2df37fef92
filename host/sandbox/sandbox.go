// Package sandbox owns one running sandbox seen from the host: it boots a
// machine, speaks with the guest's init over the link, starts apps once the
// enforcement of their policies is confirmed, and carries calls to them.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/init/link"
)

// Options says what runs where.
type Options struct {
	Machine machine.Machine
	Image   *image.Image
	Runtime *runtimedir.Root // nil: runtimedir.Open
	Apps    []App
	Shares  []Share
	// HostExecuted are the names that no app may change in a share unless its
	// policy has them; nil: the default list of host/files.
	HostExecuted []string
	Log          *slog.Logger // nil: silence
	// OnEvent is told what happens, in order, from one goroutine. A slow one slows
	// the sandbox.
	OnEvent func(Event)
	// BootTimeout bounds the time from Start to the guest's answer; 0: a minute.
	BootTimeout time.Duration
	// Rehearse lets no app execute: Start returns once the enforcement of every
	// policy is confirmed. It is how a machine is proved.
	Rehearse bool
	// Confine, if set, is called once the machine runs and before the first byte
	// of the guest is read. It may take from this process all that is not in Reach.
	Confine func(Reach) error
	// Journal gets the audit trail; nil: none is kept, as for tests and attacks.
	Journal Journal
	// Ablate names enforcement steps to leave out. Only the enforcer of the test
	// image knows how, and only tests can open that image.
	Ablate []string
}

const defaultBootTimeout = time.Minute

// Sandbox is a booted guest with its apps. All methods are safe for concurrent use.
type Sandbox struct {
	id        string
	dir       string
	o         Options
	log       *slog.Logger
	instance  machine.Instance
	session   *link.Session
	control   *link.ControlConn
	shares    []share
	notes     []string
	started   time.Time
	logs      *logs
	denials   *denials
	flights   flights
	names     names
	journal   *journal
	replacing chan struct{} // holds the one Replace that is under way

	ended chan struct{} // closed once nothing is left
	tasks sync.WaitGroup

	mu     sync.Mutex      // guards what follows
	apps   map[string]*app // every process, by its name (policy.Instance)
	booted *link.Booted
	cuts   map[string]cutBy // by app: what last cut connections to it
	boot   chan struct{}    // closed with booted, or when the guest says why not
	reason string           // why the sandbox ended or is ending
	closed bool             // Close was called
	pong   int64            // number of the last answered ping
	read   chan struct{}    // closed when the guest's last message was read; nil before the link is open

	events chan Event
}

// Start boots a sandbox and starts its apps. When it fails nothing is left.
// After it has returned, ctx has no more meaning.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	s, specs, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := s.bootMachine(ctx); err != nil {
		return nil, err
	}
	var all []*app
	for _, spec := range specs {
		started, err := s.launch(ctx, spec)
		if err != nil {
			s.abort()
			return nil, err
		}
		all = append(all, started...)
	}
	if err := s.awaitReady(ctx, all); err != nil {
		s.abort()
		return nil, err
	}
	return s, nil
}

// prepare checks everything that can be checked before anything is started.
func prepare(o Options) (*Sandbox, []appSpec, error) {
	if o.Machine == nil || o.Image == nil {
		return nil, nil, errors.New("cannot start sandbox: no machine or no image given")
	}
	s := &Sandbox{o: o, log: o.Log, apps: map[string]*app{}, cuts: map[string]cutBy{}, boot: make(chan struct{}), ended: make(chan struct{}), events: make(chan Event, eventBuffer), replacing: make(chan struct{}, 1), logs: newLogs(), denials: newDenials(), started: time.Now(), journal: &journal{to: o.Journal}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.shares, s.notes, err = checkShares(o.Shares); err != nil {
		return nil, nil, err
	}
	specs, err := s.checkApps(o.Apps)
	if err != nil {
		return nil, nil, err
	}
	if err := s.makeViews(specs); err != nil {
		return nil, nil, err
	}
	if s.o.Runtime == nil {
		if s.o.Runtime, err = runtimedir.Open(runtimedir.Search{}); err != nil {
			return nil, nil, err
		}
	}
	return s, specs, nil
}

// ID names the sandbox; it is unique on this host.
func (s *Sandbox) ID() string { return s.id }

// Dir is the sandbox's private runtime folder, gone with the sandbox.
func (s *Sandbox) Dir() string { return s.dir }

// Started is when Start was called.
func (s *Sandbox) Started() time.Time { return s.started }

// Notes says what is slower or weaker than it could be, as sentences.
func (s *Sandbox) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.notes...)
}

// Booted is what the guest said about itself.
func (s *Sandbox) Booted() link.Booted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.booted == nil {
		return link.Booted{}
	}
	return *s.booted
}

// Done is closed once nothing of the sandbox is left.
func (s *Sandbox) Done() <-chan struct{} { return s.ended }

// Err says why the sandbox ended; nil while it runs and after Close.
func (s *Sandbox) Err() error {
	select {
	case <-s.ended:
	default:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrEnded, s.reason)
}

// ErrEnded is wrapped by what fails because the sandbox is gone.
var ErrEnded = errors.New("the sandbox ended")

// ending notes the first reason why the sandbox ends. It is what pending calls
// are told.
func (s *Sandbox) ending(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		s.reason = reason
	}
}

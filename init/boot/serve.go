package boot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
)

// service is one row of the serve table: what runs until the sandbox ends.
type service struct {
	name     string
	run      func(p *pid1, ctx context.Context)
	profiles []sandbox.Profile // where it is run; nil: everywhere
}

func (s service) on(profile sandbox.Profile) bool { return on(s.profiles, profile) }

// services is the serve phase. Reaping and the log began in the boot phase,
// and each app adds a supervisor.
func services() []service {
	return []service{
		{"control", (*pid1).serveControl, nil},
		{"streams", (*pid1).serveStreams, nil},
		{"session", (*pid1).watchSession, nil},
		{"kernel log", (*pid1).kernelLog, []sandbox.Profile{sandbox.ProfileVM}},
	}
}

// serve is the second phase: it starts the services and waits for the first
// reason to end.
func (p *pid1) serve(ctx context.Context) ending {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range services() {
		if s.on(p.profile) {
			p.spawn(s.name, func() { s.run(p, ctx) })
		}
	}
	if err := p.booted(); err != nil {
		return ending{"booted", err}
	}
	return <-p.ending
}

func (p *pid1) booted() error {
	used, err := p.sys.MemoryUsed()
	if err != nil {
		return fmt.Errorf("cannot measure memory: %w", err)
	}
	p.send(link.Control{Booted: &link.Booted{Kernel: p.sys.Kernel(), ABI: p.sys.Landlock(), Errata: p.sys.Errata(), MemoryKiB: used}})
	return nil
}

// watchSession ends the sandbox with the link, whoever closed it.
func (p *pid1) watchSession(ctx context.Context) {
	select {
	case <-p.session.Done():
		p.end(ending{err: fmt.Errorf("the link ended: %w", p.session.Err())})
	case <-ctx.Done():
	}
}

// serveControl handles the host's messages in their order.
func (p *pid1) serveControl(ctx context.Context) {
	for {
		m, err := p.control.Receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				p.end(ending{err: errors.New("the host closed the control stream")})
			} else if !errors.Is(err, link.ErrClosed) {
				p.end(ending{"control", err})
			}
			return
		}
		if err := p.handle(ctx, m); err != nil {
			p.end(ending{"control", err})
			return
		}
	}
}

// handle does what one message asks. An error of it is one of the host's
// protocol; what fails about an app is told as Failed.
func (p *pid1) handle(ctx context.Context, m link.Control) error {
	switch {
	case m.Start != nil:
		p.apps.start(ctx, *m.Start)
	case m.Go != nil:
		p.apps.release(m.Go.App)
	case m.Stop != nil:
		p.apps.stop(*m.Stop)
	case m.Time != nil:
		if err := p.setClock(m.Time.UnixNano); err != nil {
			p.log.Error("cannot follow the host's clock", "error", err)
		}
	case m.Ping != nil:
		p.send(link.Control{Pong: m.Ping})
	case m.Sync != nil && p.records != nil:
		return p.records.sync(m.Sync.N)
	case m.Shutdown != nil:
		p.end(ending{})
	default:
		return fmt.Errorf("cannot handle control message %q at this point", m.Name())
	}
	return nil
}

// serveStreams handles the streams that the host opens.
func (p *pid1) serveStreams(ctx context.Context) {
	for {
		header, stream, err := p.session.Accept()
		if err != nil {
			return
		}
		p.spawn(header.Type+" stream", func() { p.serveStream(ctx, header, stream) })
	}
}

func (p *pid1) serveStream(ctx context.Context, h link.StreamHeader, stream *link.Stream) {
	switch h.Type {
	case link.StreamCall:
		p.apps.call(ctx, h.App, stream)
	case link.StreamCode:
		if err := stream.SendReply(p.codes.receive(h, stream)); err != nil {
			p.log.Warn("cannot answer about app code", "error", err)
		}
		_ = stream.Close()
	default:
		_ = stream.SendReply(fmt.Errorf("cannot serve stream: no type %q", h.Type))
		_ = stream.Close()
	}
}

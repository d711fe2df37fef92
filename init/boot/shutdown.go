package boot

import (
	"context"
	"time"

	"github.com/berthos/berth/init/link"
)

// Bounds of the end, so that nothing can keep a machine from ending.
const (
	tellFor         = 2 * time.Second  // to tell the host
	hearFor         = time.Second      // for the host to close the link after a failure
	drainRecordsFor = time.Second      // for the last records of the kernel
	unmountFor      = 5 * time.Second  // to write back what a share holds
	listenFor       = 12 * time.Second // until a host that does not read is given up
	lastResort      = 20 * time.Second // until the machine ends whatever happens
)

// shutdown is the last phase. It is the same for every reason and does each
// step whatever became of the one before.
func (p *pid1) shutdown(end ending) {
	reason := ""
	if end.err != nil {
		reason = end.err.Error()
	}
	if end.failed() {
		p.sys.Console("init: step " + end.step + " failed: " + reason)
	}
	defer p.watch()()
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"tell failure", func() { p.tellFailure(end, reason) }},
		{"stop apps", func() { p.apps.stopAll(p.session == nil || p.session.Err() != nil) }},
		{"last records", p.drainRecords},
		{"unmount shares", p.unmountShares},
		{"sync", p.sys.Sync},
		{"tell down", func() { p.tellDown(reason) }},
		{"be heard", func() { p.beHeard(end) }},
		{"end", func() {
			if err := p.sys.Reboot(); err != nil {
				p.sys.Console("init: " + err.Error())
			}
		}},
	} {
		p.attempt(s.name, s.run)
	}
	if p.session != nil { // a VM does not come this far
		_ = p.session.Close()
	}
}

// watch ends what takes too long in the end; it returns what ends the watch.
func (p *pid1) watch() (stop func()) {
	listen := time.AfterFunc(listenFor, func() {
		if p.session != nil {
			_ = p.session.Close()
		}
	})
	last := time.AfterFunc(lastResort, func() {
		p.sys.Console("init: the sandbox does not end in order")
		p.sys.Abort()
	})
	return func() {
		listen.Stop()
		last.Stop()
	}
}

// attempt runs one step of the end; a panic in it must not stop the others.
func (p *pid1) attempt(name string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			p.sys.Console("init: " + panicked(name, r).err.Error())
		}
	}()
	f()
}

// tellFailure tells the host which step failed. If the link was not open yet,
// it is opened for this.
func (p *pid1) tellFailure(end ending, reason string) {
	if !end.failed() {
		return
	}
	if p.control == nil {
		ctx, cancel := context.WithTimeout(context.Background(), tellFor)
		defer cancel()
		if p.session == nil && p.openLink(ctx) != nil {
			return
		}
		stop := time.AfterFunc(tellFor, func() { _ = p.session.Close() })
		defer stop.Stop()
		if p.openControl(ctx) != nil {
			return
		}
	}
	_ = p.control.SetWriteDeadline(p.sys.Now().Add(tellFor))
	p.send(link.Control{Failed: &link.Failed{Step: end.step, Reason: reason}})
}

// drainRecords sends what the kernel recorded of apps that are gone by now, and
// how much of it is missing.
func (p *pid1) drainRecords() {
	if p.records == nil || p.control == nil || p.session.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainRecordsFor)
	defer cancel()
	p.records.drain(ctx)
}

// unmountShares writes back what apps left in the page cache of shares.
func (p *pid1) unmountShares() {
	for _, s := range p.config.Shares {
		if s.Source != source9P {
			continue
		}
		done := make(chan error, 1)
		go func() { done <- p.sys.Unmount(sharePath(s)) }()
		select {
		case err := <-done:
			if err != nil {
				p.log.Warn("cannot unmount share", "share", s.Name, "error", err)
			}
		case <-time.After(unmountFor):
			p.sys.Console("init: share " + s.Name + " does not unmount; going on without")
		}
	}
}

// tellDown sends the last message. A write on a virtio port is accepted before
// the host has it, and the next one only after that: the end of the control
// stream, which follows, says that the message has left the guest.
func (p *pid1) tellDown(reason string) {
	if p.control == nil {
		return
	}
	stop := time.AfterFunc(tellFor, func() { _ = p.session.Close() })
	defer stop.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), tellFor)
	defer cancel()
	p.logs.flush(ctx)
	p.send(link.Control{Down: &link.Down{Reason: reason}})
	_ = p.control.Close()
}

// beHeard waits, after a failure, until the host has closed the link: it may
// just be about to open the control stream, and must find the reason there and
// not a broken link.
func (p *pid1) beHeard(end ending) {
	if !end.failed() || p.session == nil {
		return
	}
	select {
	case <-p.session.Done():
	case <-time.After(hearFor):
	}
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/init/link"
)

// bootMachine starts the machine and waits until the guest has booted.
func (s *Sandbox) bootMachine(ctx context.Context) error {
	if _, err := s.o.Runtime.Collect(); err != nil {
		s.log.Warn("cannot remove what an earlier sandbox left", "error", err)
	}
	dir, err := s.o.Runtime.New(s.nameHint())
	if err != nil {
		return err
	}
	s.id, s.dir, s.journal.run = dir.ID, dir.Path, dir.ID
	if err := s.findPlaces(ctx); err != nil {
		return errors.Join(err, dir.Discard())
	}
	if err := s.watchNames(ctx); err != nil {
		s.names.close()
		return errors.Join(err, dir.Discard())
	}
	limit := s.o.BootTimeout
	if limit == 0 {
		limit = defaultBootTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the guest did not answer within %s", limit))
	defer cancel()
	s.instance, err = s.o.Machine.Start(ctx, machine.Config{Image: s.o.Image, Dir: dir, Shares: s.machineShares(), Apps: s.machineApps()})
	if err != nil {
		s.names.close()
		return errors.Join(err, dir.Discard())
	}
	s.tasks.Go(s.watchInstance)
	s.tasks.Go(s.tell)
	s.mu.Lock()
	s.notes = append(s.notes, s.instance.Notes()...)
	s.mu.Unlock()
	s.emit(Event{Started: &Started{Machine: s.o.Machine.Describe(), Notes: s.Notes()}})
	stop := context.AfterFunc(ctx, func() { // a guest may not even read
		s.ending(context.Cause(ctx).Error())
		s.instance.Kill()
	})
	err = s.converse(ctx)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return s.bootFailed(ctx, err)
	}
	return nil
}

// nameHint is the first part of the sandbox's id.
func (s *Sandbox) nameHint() string {
	if len(s.o.Apps) == 0 {
		return "sandbox"
	}
	name, _, _ := strings.Cut(s.o.Apps[0].name(), "/")
	return name
}

// converse opens the link and the control stream and awaits Booted.
func (s *Sandbox) converse(ctx context.Context) (err error) {
	if err := s.confine(); err != nil {
		return err
	}
	session, err := link.Host(ctx, s.instance.Link())
	if err != nil {
		return err
	}
	stream, err := session.OpenStream(link.StreamHeader{Type: link.StreamControl})
	if err != nil {
		session.Close()
		return err
	}
	s.mu.Lock()
	s.session, s.control, s.read = session, link.NewControl(stream), make(chan struct{})
	s.mu.Unlock()
	s.tasks.Go(s.acceptStreams)
	s.tasks.Go(s.readControl)
	abi, errata := s.o.Machine.Landlock(s.o.Image)
	boot := link.Boot{
		UnixNano: time.Now().UnixNano(), Hostname: "berth",
		ABI: abi, Errata: errata, Shares: s.linkShares(),
	}
	if err := s.control.Send(link.Control{Boot: &boot}); err != nil {
		return err
	}
	select {
	case <-s.boot:
	case <-s.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.Booted().Kernel == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return errors.New(s.reason)
	}
	s.tasks.Go(s.keepTime)
	return nil
}

// bootFailed ends everything and says why in one line. What the machine has to
// say is more to the point than that the link broke.
func (s *Sandbox) bootFailed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else { // the guest may be ending by itself: its reason is better
		select {
		case <-s.ended:
		case <-time.After(2 * time.Second):
		}
	}
	s.ending(err.Error())
	s.abort()
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("cannot boot sandbox on machine %s: %s", s.o.Machine.Name(), s.reason)
}

// watchInstance waits for the machine's end and settles everything.
func (s *Sandbox) watchInstance() {
	end := s.instance.Wait()
	s.names.close()
	s.closeLink()
	if end.Reason != "" {
		s.ending(end.Reason)
	} else {
		s.ending("the guest shut down")
	}
	s.settleApps()
	s.logs.close()
	s.mu.Lock()
	reason := s.reason
	if s.closed {
		end.Console = ""
	}
	s.mu.Unlock()
	s.emit(Event{Ended: &Ended{Reason: reason, Console: end.Console}})
	close(s.ended)
}

// closeLink closes the link of a machine that has ended, once the guest's last
// words have been read: they may be the only explanation.
func (s *Sandbox) closeLink() {
	s.mu.Lock()
	session, read := s.session, s.read
	s.mu.Unlock()
	if session == nil {
		s.instance.Link().Close()
		return
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-read:
	case <-timer.C:
	}
	session.Close()
}

// lastWords bounds how long messages are read from a link whose other end is
// closed already.
const lastWords = time.Second

// acceptStreams serves what the guest opens: its log, its denials and its shares.
func (s *Sandbox) acceptStreams() {
	for {
		header, stream, err := s.session.Accept()
		if err != nil {
			return
		}
		switch header.Type {
		case link.StreamLog:
			s.tasks.Go(func() { s.readLogs(stream) })
		case link.StreamDenials:
			s.tasks.Go(func() { s.readDenials(stream) })
		case link.StreamShare:
			s.tasks.Go(func() { s.serveShare(header.Share, stream) })
		default:
			s.log.Warn("guest opened a stream of an unknown type", "type", header.Type)
			stream.Reset()
		}
	}
}

// serveShare answers the guest's 9P client until it goes away.
func (s *Sandbox) serveShare(name string, stream *link.Stream) {
	sh, v, ok := s.findView(name)
	if !ok || s.o.Machine.ShareSource() != machine.SourceP9 {
		s.log.Warn("guest asked for a share that it was not given", "share", name)
		stream.Reset()
		return
	}
	err := files.Serve(context.Background(), stream, files.Options{
		Root: sh.HostDir, ReadOnly: sh.ReadOnly, Exclude: sh.Exclude, HostExecuted: v.protect,
		UID: workspaceID, GID: workspaceID, Logger: s.log,
		Refused: func(op, name string) { s.onName(Name{HostDir: sh.HostDir, Op: op, Place: name, Refused: true}) },
	})
	if err != nil {
		s.log.Warn("cannot serve a share", "dir", sh.HostDir, "error", err)
	}
}

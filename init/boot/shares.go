package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
)

// Kinds of link.Share.Source.
const (
	source9P   = "9p"
	sourceBind = "bind"
)

// shareTimeout bounds the mount of one share; the host answers it.
const shareTimeout = 30 * time.Second

func (p *pid1) mountShares(context.Context) error {
	for _, s := range p.config.Shares {
		var err error
		switch s.Source {
		case sourceBind:
			if s.BindPath == "" {
				err = errors.New("no path given")
			}
		case source9P:
			err = p.mount9P(s)
		default:
			err = fmt.Errorf("no source %q", s.Source)
		}
		if err != nil {
			return fmt.Errorf("cannot mount share %q: %w", s.Name, err)
		}
	}
	return nil
}

// sharePath is where PID 1 sees a share.
func sharePath(s link.Share) string {
	if s.Source == sourceBind {
		return s.BindPath
	}
	return filepath.Join(sharesDir, s.Name)
}

// mount9P puts the kernel's 9p client at one end of a socketpair and copies
// the other end to a stream that the host serves.
func (p *pid1) mount9P(s link.Share) error {
	target := sharePath(s)
	if err := p.sys.Mkdir(target, 0o700); err != nil {
		return fmt.Errorf("cannot create folder %s: %w", target, err)
	}
	ours, kernels, err := socketpair()
	if err != nil {
		return err
	}
	defer kernels.Close()
	stream, err := p.session.OpenStream(link.StreamHeader{Type: link.StreamShare, Share: s.Name})
	if err != nil {
		_ = ours.Close()
		return err
	}
	p.spawn("share "+s.Name, func() {
		err := link.Splice(stream, ours)
		p.log.Warn("share ended", "share", s.Name, "error", err)
	})
	// Ending the connection is what ends a mount that nobody answers.
	timer := time.AfterFunc(shareTimeout, stream.Reset)
	err = p.sys.Mount9P(kernels, target, s.ReadOnly)
	if !timer.Stop() && err != nil {
		return fmt.Errorf("the host did not serve it within %s: %w", shareTimeout, err)
	}
	return err
}

// socketpair returns two connected ends; ours is for the Go poller, the other
// for the kernel.
func socketpair() (ours *net.UnixConn, kernels *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	kernels = os.NewFile(uintptr(fds[1]), "9p")
	f := os.NewFile(uintptr(fds[0]), "9p server")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		_ = kernels.Close()
		return nil, nil, fmt.Errorf("cannot use a socket pair: %w", err)
	}
	return conn.(*net.UnixConn), kernels, nil
}

// sharesFor returns the shares that a start names, for the enforcer.
func (p *pid1) sharesFor(names []string) ([]sandbox.Share, error) {
	shares := []sandbox.Share{}
	for _, name := range names {
		found := false
		for _, s := range p.config.Shares {
			if s.Name == name {
				found = true
				shares = append(shares, sandbox.Share{Path: s.Path, Source: sharePath(s), Aliases: s.Aliases, ReadOnly: s.ReadOnly})
			}
		}
		if !found {
			return nil, fmt.Errorf("no share %q in the boot configuration", name)
		}
	}
	return shares, nil
}

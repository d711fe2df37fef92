package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/sandbox"
)

// step is one row of the boot table.
type step struct {
	name     string
	run      func(p *pid1, ctx context.Context) error
	fatal    bool              // its failure ends the sandbox
	profiles []sandbox.Profile // where it is run; nil: everywhere
}

func (s step) on(profile sandbox.Profile) bool { return on(s.profiles, profile) }

func on(profiles []sandbox.Profile, profile sandbox.Profile) bool {
	return profiles == nil || slices.Contains(profiles, profile)
}

// bootSteps is the boot phase, in order. The link comes as early as it can:
// whatever fails after it is told to the host. The serve phase is serve.go.
func bootSteps() []step {
	vm := []sandbox.Profile{sandbox.ProfileVM}
	native := []sandbox.Profile{sandbox.ProfileNativeRoot, sandbox.ProfileNativeUser}
	const fatal = true
	steps := []step{}
	for _, m := range vmMounts() {
		steps = append(steps, step{"mount " + m.target, mountStep(m), fatal, vm})
	}
	return append(steps,
		step{"inherited descriptors", (*pid1).inherited, fatal, native},
		step{"emulated processor", (*pid1).emulated, !fatal, vm},
		step{"folders", (*pid1).folders, fatal, nil},
		step{"reap", (*pid1).startReaping, fatal, nil},
		step{"sysctls", (*pid1).sysctls, fatal, vm},
		step{"kernel records", (*pid1).startRecords, fatal, vm},
		step{"loopback", (*pid1).loopback, fatal, nil},
		step{"link", (*pid1).openLink, fatal, nil},
		step{"control stream", (*pid1).openControl, fatal, nil},
		step{"denials", (*pid1).openDenials, fatal, vm},
		step{"boot configuration", (*pid1).readConfig, fatal, nil},
		step{"clock", (*pid1).firstClock, fatal, vm},
		step{"hostname", (*pid1).hostname, fatal, nil},
		step{"shares", (*pid1).mountShares, fatal, nil},
	)
}

func mountStep(m mount) func(*pid1, context.Context) error {
	return func(p *pid1, _ context.Context) error {
		if err := p.sys.Mount(m); err != nil {
			return fmt.Errorf("cannot mount %s on %s: %w", m.fstype, m.target, err)
		}
		return nil
	}
}

func (p *pid1) folders(context.Context) error {

	for _, dir := range []string{runDir, appsDir, codeDir, sharesDir} {
		if err := p.sys.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("cannot create folder %s: %w", dir, err)
		}
	}
	return nil
}

// inherited keeps the machine's descriptors from every program but those that
// they are handed to.
func (p *pid1) inherited(context.Context) error {
	for _, c := range p.native.Cgroups {
		for _, fd := range c.FDs {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
				return fmt.Errorf("cannot use descriptor %d, a cgroup of app %q: %w", fd, c.App, err)
			}
		}
	}
	return nil
}

func (p *pid1) loopback(context.Context) error {
	if err := p.sys.LoopbackUp(); err != nil {
		return fmt.Errorf("cannot bring up the loopback device: %w", err)
	}
	return nil
}

// openLink waits for a host. In a VM a host may come late, leave while it
// speaks, or say something that is no handshake: the port is opened again.
func (p *pid1) openLink(ctx context.Context) error {
	for {
		conn, err := p.sys.OpenLink(ctx)
		if err != nil {
			return fmt.Errorf("cannot open the link: %w", err)
		}
		p.session, err = link.Guest(ctx, conn)
		if err == nil {
			return nil
		}
		_ = conn.Close()
		if p.profile != sandbox.ProfileVM || ctx.Err() != nil {
			return err
		}
		p.sys.Console("init: " + err.Error() + "; waiting for another host")
	}
}

// openControl opens the log and accepts the control stream, which comes first.
func (p *pid1) openControl(context.Context) error {
	stream, err := p.session.OpenStream(link.StreamHeader{Type: link.StreamLog})
	if err != nil {
		return err
	}
	p.spawn("log", func() { p.logs.send(stream.SendLog) })
	header, control, err := p.session.Accept()
	if err != nil {
		return err
	}
	if header.Type != link.StreamControl {
		control.Reset()
		return fmt.Errorf("cannot accept the control stream: the first stream is of type %q", header.Type)
	}
	p.control = link.NewControl(control)
	return nil
}

func (p *pid1) readConfig(context.Context) error {
	m, err := p.control.Receive()
	if err != nil {
		return err
	}
	if m.Boot == nil {
		return fmt.Errorf("cannot read boot configuration: the first message is %q", m.Name())
	}
	p.config = *m.Boot
	return p.checkConfig()
}

func (p *pid1) checkConfig() error {
	if len(p.config.Shares) > link.MaxGuestStreams-2 {
		return fmt.Errorf("cannot use boot configuration: %d shares, at most %d", len(p.config.Shares), link.MaxGuestStreams-2)
	}
	seen := map[string]bool{}
	for _, s := range p.config.Shares {
		if err := checkName(s.Name); err != nil {
			return fmt.Errorf("cannot use boot configuration: share %q: %w", s.Name, err)
		}
		if seen[s.Name] {
			return fmt.Errorf("cannot use boot configuration: share %q twice", s.Name)
		}
		seen[s.Name] = true
	}
	if abi := p.sys.Landlock(); p.config.ABI != 0 && abi != p.config.ABI {
		return fmt.Errorf("cannot use boot configuration: the host expects Landlock ABI %d, this kernel has %d", p.config.ABI, abi)
	}
	if have := p.sys.Errata(); p.config.Errata&^have != 0 {
		return fmt.Errorf("cannot use boot configuration: the host expects fixes of Landlock's errata %#x, this kernel has %#x", p.config.Errata, have)
	}
	return nil
}

func (p *pid1) hostname(context.Context) error {
	if p.config.Hostname == "" {
		return nil
	}
	if err := p.sys.Hostname(p.config.Hostname); err != nil {
		return fmt.Errorf("cannot set hostname %q: %w", p.config.Hostname, err)
	}
	return nil
}

func (p *pid1) firstClock(context.Context) error {
	return p.setClock(p.config.UnixNano)
}

// clockTolerance is how far the guest's clock may be off.
const clockTolerance = 500 * time.Millisecond

// setClock sets the clock to the host's if it is off.
func (p *pid1) setClock(unixNano int64) error {
	if p.profile != sandbox.ProfileVM || unixNano == 0 {
		return nil
	}
	want := time.Unix(0, unixNano)
	off := p.sys.Now().Sub(want).Abs()
	if off <= clockTolerance {
		return nil
	}
	if err := p.sys.SetClock(want); err != nil {
		return fmt.Errorf("cannot set the clock, which is off by %s: %w", off, err)
	}
	p.log.Info("clock set", "off", off)
	return nil
}

// checkName accepts names that are safe as one component of a path.
func checkName(name string) error {
	if name == "" || len(name) > 64 {
		return errors.New("a name has 1 to 64 characters")
	}
	for i := range len(name) {
		c := name[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && (c == '-' || c == '_' || c == '.')
		if !ok {
			return errors.New("a name has letters, digits, '-', '_' and '.', and begins with a letter or digit")
		}
	}
	return nil
}

package choose

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/userdir"
)

// State is the file in which berth remembers what it learned about hosts.
type State struct{ path string }

// file is its content.
type file struct {
	Schema int     `json:"schema"`
	Native []host  `json:"accepted_native"` // where the user accepted a machine without a VM boundary
	KVM    []proof `json:"kvm"`
}

type host struct {
	ID string `json:"host"`
}

// proof is the outcome of one trial of KVM.
type proof struct {
	Key    string `json:"key"` // everything the outcome depends on
	OK     bool   `json:"ok"`
	Reason string `json:"reason"`
}

const (
	stateSchema = 1
	maxState    = 1 << 20
	maxProofs   = 64
)

// OpenState names the state file below $XDG_STATE_HOME or ~/.local/state. It is
// made when there is something to remember.
func OpenState(getenv func(string) string) (*State, error) {
	dir, err := userdir.State.DirFrom(getenv)
	if err != nil {
		return nil, err
	}
	return &State{path: filepath.Join(dir, "machines.json")}, nil
}

// read returns what is remembered. A file of somebody else is not believed: it
// could accept what the user never did.
func (s *State) read() (file, error) {
	f, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return file{Schema: stateSchema}, nil
	}
	if err != nil {
		return file{}, hint.Errorf("remove it, or set XDG_STATE_HOME to a folder of your own", "cannot read state: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return file{}, fmt.Errorf("cannot read state: %w", err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return file{}, hint.Errorf("remove it", "cannot trust state %s: others may write to it", s.path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return file{}, fmt.Errorf("cannot read state: %w", err)
	}
	var c file
	if err := json.Unmarshal(raw, &c); err != nil || c.Schema != stateSchema {
		return file{}, hint.Errorf("remove it: berth only remembers there what it can find out again", "cannot read state %s: it is not one of this version", s.path)
	}
	return c, nil
}

// update changes the file under a lock and replaces it as a whole.
func (s *State) update(change func(*file)) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("cannot remember: %w", err)
	}
	lock, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot remember: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("cannot remember: %w", err)
	}
	c, err := s.read()
	if err != nil {
		return err
	}
	change(&c)
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot remember: %w", err)
	}
	return replace(s.path, append(raw, '\n'))
}

func replace(path string, raw []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".machines-*")
	if err != nil {
		return fmt.Errorf("cannot remember: %w", err)
	}
	defer os.Remove(tmp.Name()) // gone if it was renamed
	_, err = tmp.Write(raw)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("cannot remember: %w", err)
	}
	return nil
}

// AcceptNative remembers that the user accepts, on this host, a machine without
// a VM boundary.
func (s *State) AcceptNative() error {
	id, err := hostID()
	if err != nil {
		return err
	}
	return s.update(func(c *file) {
		if !slices.Contains(c.Native, host{id}) {
			c.Native = append(c.Native, host{id})
		}
	})
}

// NativeAccepted reports whether AcceptNative was called on this host.
func (s *State) NativeAccepted() (bool, error) {
	c, err := s.read()
	if err != nil || len(c.Native) == 0 {
		return false, err
	}
	id, err := hostID()
	return err == nil && slices.Contains(c.Native, host{id}), err
}

func (s *State) remember(p proof) error {
	return s.update(func(c *file) {
		c.KVM = slices.DeleteFunc(c.KVM, func(q proof) bool { return q.Key == p.Key })
		c.KVM = append(c.KVM, p)
		c.KVM = c.KVM[max(0, len(c.KVM)-maxProofs):]
	})
}

// keep remembers p where it can: a home that cannot be written costs a trial at
// each start, and says so.
func (s *State) keep(p proof) proof {
	if err := s.remember(p); err != nil {
		p.Reason += "; the next start tries again: " + err.Error()
	}
	return p
}

func (s *State) proof(key string) (proof, bool, error) {
	c, err := s.read()
	i := slices.IndexFunc(c.KVM, func(q proof) bool { return q.Key == key })
	if err != nil || i < 0 {
		return proof{}, false, err
	}
	return c.KVM[i], true, nil
}

// hostID tells hosts apart that share a home folder.
func hostID() (string, error) {
	for _, name := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/hostname"} {
		if raw, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(raw)) != "" {
			return digest(name, strings.TrimSpace(string(raw))), nil
		}
	}
	return "", errors.New("cannot tell this host from others: it has neither a machine id nor a name")
}

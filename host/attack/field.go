package attack

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/init/sandbox/probe"
)

// field is where attacks take place: folders of this host with something to
// attack for every probe. share is the sandbox's, control that of the controls.
type field struct {
	dir, share, control string
	token               string
	open                []interface{ Close() error }
	devices             bool // this user may make device nodes
}

// parts of a share, as the policy of the attack app knows them.
const (
	partWrite, partRead, partOut, partVictim, partExtra = "rw", "ro", "out", "victim", "extra"
)

func newField() (*field, error) {
	dir, err := os.MkdirTemp("", "berth-attack-")
	if err != nil {
		return nil, fmt.Errorf("cannot attack: %w", err)
	}
	f := &field{dir: dir, share: filepath.Join(dir, "share"), control: filepath.Join(dir, "control")}
	token := make([]byte, 8)
	rand.Read(token)
	f.token = "victim-" + hex.EncodeToString(token)
	for _, base := range []string{f.share, f.control} {
		for _, part := range []string{partWrite, partRead, partOut, partVictim, partExtra, "canary", "scratch", "tmp"} {
			if err := os.MkdirAll(filepath.Join(base, part), 0o755); err != nil {
				f.remove()
				return nil, fmt.Errorf("cannot attack: %w", err)
			}
		}
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(f.control, "canary", "canary"), nil, 0o600),
		os.WriteFile(filepath.Join(f.share, partExtra, "extra"), []byte("extra\n"), 0o644))
	if err != nil {
		f.remove()
		return nil, fmt.Errorf("cannot attack: %w", err)
	}
	return f, nil
}

func (f *field) remove() {
	for _, c := range f.open {
		c.Close()
	}
	os.RemoveAll(f.dir)
}

// hostWorld is the world of the controls.
func (f *field) hostWorld(w probe.World) probe.World {
	w.Write, w.Read = filepath.Join(f.control, partWrite), filepath.Join(f.control, partRead)
	w.Out, w.Canary = filepath.Join(f.control, partOut), filepath.Join(f.control, "canary")
	return w
}

// hostVictim is what the controls' victim holds.
func (f *field) hostVictim() (probe.Victim, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return probe.Victim{}, fmt.Errorf("cannot find a free port for the control: %w", err)
	}
	defer l.Close()
	return probe.Victim{
		Token: f.token + "-host", Port: l.Addr().(*net.TCPAddr).Port, Scratch: filepath.Join(f.control, "scratch"),
		Shared: filepath.Join(f.control, partVictim), Tmp: filepath.Join(f.control, "tmp"),
	}, nil
}

// plant makes the folders of all probes anew.
func (f *field) plant(w probe.World) error {
	var errs []error
	for _, base := range []string{f.share, f.control} {
		for _, part := range []string{partWrite, partRead, partOut} {
			for _, p := range probe.All(w) {
				if dir := filepath.Join(base, part, p.ID); p.Folders() {
					errs = append(errs, os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "d"), 0o755),
						os.WriteFile(filepath.Join(dir, "f"), []byte("original\n"), 0o644))
				}
			}
		}
		errs = append(errs,
			f.listen(base, "PR-10/socket", unix.SOCK_STREAM), f.listen(base, "PR-10p/socket", unix.SOCK_STREAM),
			f.listen(base, "PR-10d/datagrams", unix.SOCK_DGRAM))
		device := filepath.Join(base, partWrite, "FS-15o", "device")
		f.devices = unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot prepare what is attacked: %w", err)
	}
	return nil
}

// listen makes a socket that anybody may connect to, and keeps it open.
func (f *field) listen(base, name string, kind int) error {
	name = filepath.Join(base, partWrite, name)
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f.open = append(f.open, os.NewFile(uintptr(fd), name))
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 64)
	}
	return errors.Join(err, os.Chmod(name, 0o777))
}

// state describes what no attack of the given probes may change, by path: names,
// modes, times and contents.
func (f *field) state(probes []probe.Probe) (map[string]string, error) {
	state := map[string]string{}
	for _, part := range []string{partRead, partOut} {
		for _, p := range probes {
			err := filepath.WalkDir(filepath.Join(f.share, part, p.ID), func(name string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // a probe without folders
				}
				if err != nil {
					return err
				}
				what, err := look(name, d)
				state[strings.TrimPrefix(name, f.share)] = what
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("cannot look at what was attacked: %w", err)
			}
		}
	}
	return state, nil
}

func look(name string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	var sum [32]byte
	if info.Mode().IsRegular() {
		raw, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		sum = sha256.Sum256(raw)
	}
	return fmt.Sprint(info.Mode(), info.ModTime().UnixNano(), sum), nil
}

// changed lists the probes whose folders differ.
func changed(before, after map[string]string) map[string]bool {
	out := map[string]bool{}
	for _, pair := range [][2]map[string]string{{before, after}, {after, before}} {
		for name, was := range pair[0] {
			if pair[1][name] != was {
				if parts := strings.Split(name, "/"); len(parts) > 2 {
					out[parts[2]] = true
				}
			}
		}
	}
	return out
}

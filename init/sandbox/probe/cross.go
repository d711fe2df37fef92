package probe

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Victim is what another app of the same sandbox holds. Both have the same code
// and know the same names.
type Victim struct {
	Token   string `json:"token"`   // its argument, the name of its socket and of its files
	Port    int    `json:"port"`    // TCP, of its loopback
	Scratch string `json:"scratch"` // its private folder
	Shared  string `json:"shared"`  // its part of a share
	Tmp     string `json:"tmp"`     // its /tmp
}

// neighbourPort is the port of a victim in a sandbox.
const neighbourPort = 47101

// Neighbour is the victim that a sandbox holds under a token.
func Neighbour(token string) Victim {
	return Victim{Token: token, Port: neighbourPort, Scratch: "/scratch", Shared: "/workspace/victim", Tmp: "/tmp"}
}

// Hold takes everything of a victim and keeps it until the process ends.
func (v Victim) Hold() error {
	listen := func(family int, at unix.Sockaddr) error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, at), unix.Listen(fd, 16)) // stays open
	}
	errs := []error{listen(unix.AF_INET, v.loopback())}
	if err := listen(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + v.Token}); !errors.Is(err, unix.EPERM) {
		errs = append(errs, err) // a kernel whose Landlock does not tell sockets apart has none for apps
	}
	for _, dir := range []string{v.Scratch, v.Shared, v.Tmp} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, v.Token), []byte(v.Token), 0o666))
	}
	return errors.Join(errs...)
}

func (v Victim) loopback() unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: v.Port}
}

// Cross are attacks on another app of the same sandbox. An app's namespaces and
// tree do not contain the other's things, so there is no single layer to claim.
func (w World) Cross() []Probe {
	v := w.Victim
	if v.Token == "" {
		return nil
	}
	want := []syscall.Errno{unix.ENOENT, unix.ESRCH, unix.ECONNREFUSED, unix.EACCES, unix.EPERM}
	file := func(dir string) func(World, string) error {
		return func(World, string) error {
			raw, err := os.ReadFile(filepath.Join(dir, v.Token))
			return effect(err, string(raw) == v.Token)
		}
	}
	list := []Probe{
		{ID: "MA-01s", What: "read a file of another app's scratch folder", Run: file(v.Scratch)},
		{ID: "MA-01w", What: "read a file that another app has in its part of the share", Run: file(v.Shared)},
		{ID: "MA-01t", What: "read a file of another app's /tmp", Run: file(v.Tmp)},
		{ID: "MA-01p", What: "find another app's process", Run: func(World, string) error {
			_, err := v.find()
			return err
		}},
		{ID: "MA-01k", What: "signal another app", Run: func(World, string) error {
			pid, err := v.find()
			if err != nil {
				return err
			}
			return unix.Kill(pid, unix.SIGURG)
		}},
		{ID: "MA-01e", What: "read another app's environment", Run: func(World, string) error {
			pid, err := v.find()
			if err != nil {
				return err
			}
			return openClose("/proc/"+itoa(pid)+"/environ", unix.O_RDONLY)
		}},
		{ID: "MA-01f", What: "open another app's files through its descriptors", Run: func(World, string) error {
			pid, err := v.find()
			if err != nil {
				return err
			}
			list, err := os.ReadDir("/proc/" + itoa(pid) + "/fd")
			return effect(err, len(list) > 0)
		}},
		{ID: "MA-01l", What: "connect to another app's port, which is granted", Run: func(World, string) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, v.loopback())
		}},
		{ID: "MA-01a", What: "connect to another app's abstract socket", Run: func(World, string) error { return connectSocket("@" + v.Token) }},
	}
	for i := range list {
		list[i].Want = want
	}
	return list
}

// Narrowed is an attack on what other processes of the same app may touch. In
// those it must work, which is its control.
func (w World) Narrowed() Probe {
	return Probe{ID: "MA-05", What: "read what the app may read and this process of it may not", Want: denied, Run: func(w World, _ string) error {
		raw, err := os.ReadFile(w.Beyond)
		return effect(err, len(raw) > 0)
	}}
}

// find looks for the victim's process by its argument.
func (v Victim) find() (int, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return 0, errors.Join(errSetUp, err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		raw, err := os.ReadFile("/proc/" + dir.Name() + "/cmdline")
		if err == nil && bytes.Contains(raw, []byte("\x00"+v.Token+"\x00")) {
			return pid, nil
		}
	}
	return 0, unix.ESRCH
}

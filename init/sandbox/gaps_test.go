package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// This file is about what older versions of Landlock do not see: another layer
// stands in, or the app does not start.

// kernelABI returns the version of this kernel's Landlock.
func kernelABI(t *testing.T) int {
	t.Helper()
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		t.Fatal(err)
	}
	return abi
}

// expect compares answers with a list of ACTION=ANSWER|ANSWER.
func expect(t *testing.T, about string, o outcome, want string) {
	t.Helper()
	got := answers(o)
	for _, pair := range strings.Fields(want) {
		action, want, _ := strings.Cut(pair, "=")
		if !slices.Contains(strings.Split(want, "|"), got[action]) {
			t.Errorf("%s: %s: %q, want %s (%+v %s)", about, action, got[action], want, o.failed(), o.Stderr)
		}
	}
}

// TestUDP sends datagrams. From Landlock ABI 10 on they follow the policy's
// ports; below it they stay on the app's own loopback, which nobody shares, and
// an app without network has no socket for them.
func TestUDP(t *testing.T) {
	host, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	port := host.LocalAddr().(*net.UDPAddr).Port
	sent := 0
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		actions := fmt.Sprintf("udp:%d udp:9 udpbind:8081 udpbind:8082 udpout:%d", port, port)
		granted := fmt.Sprintf("udp:%d=ok udpbind:8081=ok udpout:%d=ENETUNREACH ", port, port)
		ports, open := "udp:9=EACCES udpbind:8082=EACCES", "udp:9=ok udpbind:8082=ok"
		if kernelABI(t) < 10 {
			ports = open
		}
		for _, c := range []struct {
			network      bool
			ablate, want string
		}{
			{true, "", granted + ports},
			{true, "landlock", granted + open},
			{false, "", fmt.Sprintf("udp:%d=EPERM udp:9=EPERM udpbind:8081=EPERM", port)},
			{false, "seccomp", "udpout:9=ENETUNREACH|EACCES"},
		} {
			j := b.job(profile, append([]string{"-net", "udpout:9"}, strings.Fields(actions)...)).withCgroup(t).with(t, func(p *policy.Policy) {
				if c.network {
					p.Connect, p.Bind = []uint16{uint16(port)}, []uint16{8081}
				}
				p.Rights = p.Rights.WithClass()
			})
			j.Spec.Ablate = strings.Fields(c.ablate)
			o := start(t, j)
			expect(t, fmt.Sprintf("%s network %v without %q", profile, c.network, c.ablate), o, c.want)
			if c.ablate == "" && kernelABI(t) < 10 && !said(o, sandbox.StepLandlock, "UDP send and bind: the app's network namespace") {
				t.Errorf("%s: no step says what stands in for UDP rules: %+v", profile, o.Reports)
			}
			sent++
		}
	}
	// Control: whoever shares the host's loopback reaches the same socket. The
	// apps' datagrams would have come first.
	control, err := net.Dial("udp4", host.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if _, err := control.Write([]byte("control")); err != nil {
		t.Fatal(err)
	}
	host.SetReadDeadline(time.Now().Add(time.Minute))
	heard := make([]byte, 64)
	n, _, err := host.ReadFrom(heard)
	if err != nil || string(heard[:n]) != "control" {
		t.Errorf("after %d apps the host's socket heard %q, %v", sent, heard[:n], err)
	}
}

// said reports whether a step's detail has a text.
func said(o outcome, step, text string) bool {
	return slices.ContainsFunc(o.Reports, func(r sandbox.Report) bool {
		return r.Step != nil && r.Step.Name == step && strings.Contains(r.Step.Detail, text)
	})
}

// TestUnixSockets connects to sockets that the host made in a share, and to the
// app's own.
func TestUnixSockets(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		heard := hostSockets(t, b)
		host := "host:/workspace/host datagram:/workspace/hostd"
		args := append([]string{"-unix", "own:/workspace/own", "own:/scratch/own", "pair:"}, strings.Fields(host)...)
		free := "own:/workspace/own=ok own:/scratch/own=ok pair:=ok "
		refused, layer := free+"host:/workspace/host=EACCES datagram:/workspace/hostd=EACCES", "landlock"
		if kernelABI(t) < 9 { // no sockets at all, where others could have made some
			refused, layer = "own:/workspace/own=EPERM own:/scratch/own=EPERM pair:=ok host:/workspace/host=EPERM datagram:/workspace/hostd=EPERM", "seccomp"
		}
		for _, c := range []struct{ grants, ablate, want string }{
			{"write:/workspace", "", refused},
			{"write:/workspace", layer, free + "host:/workspace/host=ok datagram:/workspace/hostd=ok"},
			// Its own are enough where no share is granted, and no other exists.
			{"write:/tmp", "", "own:/scratch/own=ok pair:=ok host:/workspace/host=ENOENT"},
		} {
			j := b.job(profile, args, grants(c.grants)...).withCgroup(t)
			j.Spec.Ablate = strings.Fields(c.ablate)
			before := len(heard)
			expect(t, fmt.Sprintf("%s with %s without %q", profile, c.grants, c.ablate), start(t, j), c.want)
			if c.ablate != "" {
				for range 2 { // control: they do hear
					<-heard
				}
			} else if len(heard) != before {
				t.Errorf("%s: a socket of the host heard %q", profile, <-heard)
			}
		}
	}
}

// hostSockets listens in a share and passes on what is heard.
func hostSockets(t *testing.T, b base) <-chan string {
	t.Helper()
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(b.share, "host"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	datagram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(b.share, "hostd"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagram.Close() })
	for _, name := range []string{"host", "hostd"} {
		os.Chmod(filepath.Join(b.share, name), 0o777)
	}
	heard := make(chan string, 16)
	go func() {
		for {
			c, err := stream.Accept()
			if err != nil {
				return
			}
			heard <- "a connection"
			c.Close()
		}
	}()
	go func() {
		raw := make([]byte, 64)
		for {
			n, _, err := datagram.ReadFrom(raw)
			if err != nil {
				return
			}
			heard <- string(raw[:n])
		}
	}()
	return heard
}

// TestDroppedCaches drops the kernel's caches between enforcement and the app's
// first access: a rule must keep hold of its folder, whatever the share does
// with its inodes.
func TestDroppedCaches(t *testing.T) {
	profile := profiles[0] // an ordinary user can not drop them
	args := []string{"-do", "read:/workspace/docs/a", "create:/workspace/src/new", "read:/workspace/src/new", "write:/workspace/docs/a", "list:/workspace", "stat:/workspace/top"}
	want := "read:/workspace/docs/a docs/a\ncreate:/workspace/src/new ok\nread:/workspace/src/new by the app\nwrite:/workspace/docs/a EROFS\nlist:/workspace EACCES\nstat:/workspace/top ENOENT\n"
	for _, share := range []func(*testing.T, base) string{bound, served} {
		b := newBase(t, profile, "")
		b.plantFiles(t, b.share, "top", "docs/a", "src/b")
		j := b.job(profile, args, grants("read:/workspace/docs", "write:/workspace/src")...).withCgroup(t)
		if j.Spec.Shares[0].Source = share(t, b); j.Spec.Shares[0].Source == "" {
			continue
		}
		j.Drop = true
		if o := start(t, j); o.Stdout != want {
			t.Errorf("%s: got\n%swant\n%s%+v", j.Spec.Shares[0].Source, o.Stdout, want, o.failed())
		}
	}
}

func bound(_ *testing.T, b base) string { return b.share }

// served mounts the share over 9p, as in a VM, if this is one.
func served(t *testing.T, b base) string {
	t.Helper()
	if profiles[0] != sandbox.ProfileVM {
		t.Log("9p is tried in a VM, where shares come that way")
		return ""
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- files.Serve(t.Context(), os.NewFile(uintptr(pair[1]), "9p"), files.Options{Root: b.share, UID: uint32(b.uid), GID: uint32(b.uid)})
	}()
	dir := filepath.Join(b.dir, "share9p")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := fmt.Sprintf("trans=fd,rfdno=%d,wfdno=%d,version=9p2000.L,access=any,cache=mmap,msize=524312,noxattr", pair[0], pair[0])
	if err := unix.Mount("files", dir, "9p", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
		unix.Close(pair[0])
		<-ended
	})
	return dir
}

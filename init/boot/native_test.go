package boot

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/sdk/protocol"
	"github.com/berthos/berth/tools/testenv"
)

func bootedNative(t *testing.T) *native {
	t.Helper()
	n := bootNative(t, profile())
	n.boot(link.Boot{Hostname: "sandbox"})
	return n
}

func TestNativeFromBootToShutdown(t *testing.T) {
	for _, profile := range []string{string(sandbox.ProfileNativeRoot), string(sandbox.ProfileNativeUser)} {
		t.Run(profile, func(t *testing.T) {
			if profile == string(sandbox.ProfileNativeRoot) && os.Geteuid() != 0 {
				testenv.Skip(t, "needs root")
			}
			n := bootNative(t, profile)
			n.boot(link.Boot{Hostname: "sandbox"})
			for _, s := range n.steps {
				if s.Error != "" {
					t.Errorf("step %s: %s", s.Name, s.Error)
				}
			}
			n.start("a")
			if got := n.call("a", "echo", `{"x":1}`); got != `{"x":1}` {
				t.Errorf("echo: %s", got)
			}
			n.send(link.Control{Ping: &link.Ping{N: 7}})
			if m := n.receive(); m.Pong == nil || m.Pong.N != 7 {
				t.Errorf("pong: %+v", m)
			}
			n.shutdown()
			if err := <-n.ended; err != nil {
				t.Error(err)
			}
			if !n.logged("app of a") || !n.logged("bye") {
				t.Errorf("log: %+v", n.logs)
			}
		})
	}
}

func TestRawStreamIsByteExact(t *testing.T) {
	n := bootedNative(t)
	n.start("a")
	stream, err := n.openCall("a")
	if err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(protocol.Request{Type: protocol.TypeStream, ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	sent, got := sha256.New(), sha256.New()
	go func() {
		_, _ = stream.Write(append(head, '\n'))
		block := make([]byte, 1<<20)
		for i := range size / len(block) {
			block[i]++
			sent.Write(block)
			_, _ = stream.Write(block)
		}
		_ = stream.CloseWrite()
	}()
	if n, err := io.Copy(got, stream); err != nil || n != size {
		t.Fatal(n, err)
	}
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Fatal("bytes differ")
	}
}

// failing starts an app that does not become ready and returns why.
func failing(t *testing.T, n *native, s link.Start) link.Failed {
	t.Helper()
	n.send(link.Control{Start: &s})
	for {
		m := n.receive()
		switch {
		case m.Enforced != nil:
			n.send(link.Control{Go: &link.Go{App: s.App}})
		case m.Failed != nil:
			return *m.Failed
		default:
			t.Fatalf("unexpected %s", m.Name())
		}
	}
}

func TestAppsThatDoNotBecomeReady(t *testing.T) {
	n := bootedNative(t)
	mute := request(t, "mute", "mute")
	mute.ReadyMillis = 300
	wrong := request(t, "a")
	wrong.App = "b"
	nowhere := request(t, "nowhere")
	nowhere.CodeDir = "/apps/../proc"
	unsent := request(t, "unsent")
	unsent.CodeDir = ""
	share := request(t, "share")
	share.Shares = []string{"w"}
	spaced := request(t, "spaced")
	spaced.Policy = append(spaced.Policy, ' ')
	for _, c := range []struct {
		start  link.Start
		step   string
		reason []string
	}{
		{request(t, "refuse", "refuse"), "landlock", []string{"no Landlock here"}},
		{request(t, "exit", "exit"), "ready", []string{"exit status 7", "cannot find my configuration"}},
		{mute, "ready", []string{"was not ready within 300ms", "signal: killed"}},
		{request(t, "../x"), "start", []string{"a name has letters"}},
		{wrong, "start", []string{`its policy is that of "a"`}},
		{nowhere, "start", []string{"not below /apps"}},
		{unsent, "start", []string{"was not sent"}},
		{share, "start", []string{`no share "w"`}},
		{spaced, "start", []string{"canonical"}},
	} {
		f := failing(t, n, c.start)
		if f.App != c.start.App || f.Step != c.step {
			t.Errorf("%s failed in %q of %q: %s", c.start.App, f.Step, f.App, f.Reason)
		}
		for _, want := range c.reason {
			if !strings.Contains(f.Reason, want) {
				t.Errorf("%s: reason %q, want %q", c.start.App, f.Reason, want)
			}
		}
	}
	n.start("control") // the sandbox goes on
}

func TestCallsNameWhatIsWrong(t *testing.T) {
	n := bootedNative(t)
	if got := n.call("a", "echo", "1"); !strings.Contains(got, `no app "a" is running; none is`) {
		t.Error(got)
	}
	n.start("b")
	n.start("c")
	if got := n.call("a", "echo", "1"); !strings.Contains(got, `no app "a" is running; running: b, c`) {
		t.Error(got)
	}
	again := request(t, "b")
	if f := failing(t, n, again); !strings.Contains(f.Reason, "it is running") {
		t.Error(f)
	}
}

func TestAppThatDiesInACallIsRestarted(t *testing.T) {
	n := bootedNative(t)
	s := request(t, "a")
	n.startAs(s)
	if got := n.call("a", "die", "1"); got != "error: EOF" {
		t.Errorf("call ended with %s", got)
	}
	m := n.receive()
	if m.Exited == nil || m.Exited.Status != "exit status 9" || m.Exited.RestartMillis != 1000 {
		t.Fatalf("%s %+v", m.Name(), m.Exited)
	}
	if got := n.call("a", "echo", "1"); !strings.Contains(got, "it is not ready") {
		t.Error(got)
	}
	n.ready(s)
	if got := n.call("a", "echo", "1"); got != "1" {
		t.Error(got)
	}
}

func TestStopEndsAppsThatDoNotWantTo(t *testing.T) {
	for args, want := range map[string]string{"": "exit status 0", "stubborn": "signal: killed"} {
		t.Run(want, func(t *testing.T) {
			n := bootedNative(t)
			n.start("a", args)
			n.send(link.Control{Stop: &link.Stop{App: "a"}})
			m := n.receive()
			if m.Exited == nil || m.Exited.Status != want || m.Exited.RestartMillis != 0 {
				t.Fatalf("%s %+v", m.Name(), m.Exited)
			}
			n.start("a") // the name is free
		})
	}
}

func TestFloodOfOneAppLeavesTheOthersLog(t *testing.T) {
	n := bootedNative(t)
	n.start("flood", "flood")
	for range 20 {
		n.start("a")
		n.send(link.Control{Stop: &link.Stop{App: "a"}})
		if m := n.receive(); m.Exited == nil {
			t.Fatal(m.Name())
		}
	}
	n.shutdown()
	<-n.ended
	n.mu.Lock()
	defer n.mu.Unlock()
	dropped, others := int64(0), 0
	for _, r := range n.logs {
		dropped += r.Dropped
		if r.App == "a" {
			others++
			if r.Dropped > 0 {
				t.Errorf("lines of the other app were lost: %+v", r)
			}
		}
	}
	if others != 40 {
		t.Errorf("%d lines of the other app, want 40", others)
	}
	t.Logf("%d lines, %d dropped", len(n.logs), dropped)
}

func TestEndOfTheLinkEndsTheSandbox(t *testing.T) {
	n := bootedNative(t)
	n.start("a", "stubborn")
	_ = n.session.Close()
	if err := <-n.ended; err != nil {
		t.Error(err)
	}
}

func TestSignalEndsTheSandboxInOrder(t *testing.T) {
	n := bootedNative(t)
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if m := n.receive(); m.Down == nil || m.Down.Reason != "terminated" {
		t.Fatalf("%+v", m)
	}
	if err := <-n.ended; err != nil {
		t.Error(err)
	}
}

func TestProtocolErrorsEndTheSandbox(t *testing.T) {
	n := bootedNative(t)
	n.send(link.Control{Boot: &link.Boot{}})
	if got := n.failure(); got.Step != "control" || !strings.Contains(got.Reason, `"boot"`) {
		t.Errorf("%+v", got)
	}
	if err := <-n.ended; err == nil || n.cmd.ProcessState.ExitCode() != ExitFailed {
		t.Error(err)
	}
}

func TestFatalStepIsTold(t *testing.T) {
	n := bootNative(t, profile())
	stream, err := n.session.OpenStream(link.StreamHeader{Type: link.StreamControl})
	if err != nil {
		t.Fatal(err)
	}
	n.control = link.NewControl(stream)
	n.send(link.Control{Boot: &link.Boot{Shares: []link.Share{{Name: "w", Source: "floppy"}}}})
	if got := n.failure(); got.Step != "shares" || !strings.Contains(got.Reason, `no source "floppy"`) {
		t.Errorf("%+v", got)
	}
	if err := <-n.ended; err == nil || n.cmd.ProcessState.ExitCode() != ExitFailed {
		t.Error(err)
	}
	if !strings.Contains(n.stderr.String(), "floppy") {
		t.Errorf("console: %s", n.stderr)
	}
}

func TestWithoutLink(t *testing.T) {
	n := launchNative(t, nil, profile())
	if err := <-n.ended; err == nil || n.cmd.ProcessState.ExitCode() != ExitFailed {
		t.Error(err)
	}
	if !strings.Contains(n.stderr.String(), "descriptor 3") {
		t.Error(n.stderr)
	}
}

// appImage builds the image of a folder with one file.
func appImage(t *testing.T) (image []byte, digest string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	digest, _, err := appimage.Build(&b, dir)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), digest
}

// sendCode sends an image as the host does.
func (h *hostEnd) sendCode(header link.StreamHeader, image []byte) error {
	header.Type = link.StreamCode
	stream, err := h.session.OpenStream(header)
	if err != nil {
		h.t.Fatal(err)
	}
	defer stream.Close()
	if _, err := stream.Write(image); err != nil && !errors.Is(err, link.ErrReset) {
		h.t.Fatal(err)
	}
	_ = stream.CloseWrite()
	return stream.ReceiveReply()
}

func TestAppCodeThatIsNotWhatItSays(t *testing.T) {
	n := bootedNative(t)
	image, digest := appImage(t)
	good := link.StreamHeader{SHA256: strings.TrimPrefix(digest, "sha256:"), Size: int64(len(image))}
	flipped := bytes.Clone(image)
	flipped[512] ^= 1
	for _, c := range []struct {
		name   string
		header link.StreamHeader
		image  []byte
		want   string
	}{
		{"flipped bit", good, flipped, "digest"},
		{"cut", good, image[:len(image)-512], ""},
		{"no digest", link.StreamHeader{SHA256: "../../x", Size: 1}, nil, "no sha256"},
		{"too large", link.StreamHeader{SHA256: good.SHA256, Size: 1 << 40}, nil, "at most"},
		{"no size", link.StreamHeader{SHA256: good.SHA256}, nil, "at most"},
	} {
		if err := n.sendCode(c.header, c.image); !errors.Is(err, link.ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := n.sendCode(good, image); err != nil { // the control
		t.Error(err)
	}
}

// withCode is a start of an app whose code comes over the link.
func withCode(t *testing.T, app, digest string) link.Start {
	t.Helper()
	s := request(t, app)
	p, err := policy.Parse(s.Policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Code = digest
	if s.Policy, err = p.Encode(); err != nil {
		t.Fatal(err)
	}
	s.CodeDir = ""
	return s
}

func TestAppCodeOverTheLink(t *testing.T) {
	n := bootedNative(t)
	image, digest := appImage(t)
	hex := strings.TrimPrefix(digest, "sha256:")
	for range 2 { // the second time it is held already
		if err := n.sendCode(link.StreamHeader{SHA256: hex, Size: int64(len(image))}, image); err != nil {
			t.Fatal(err)
		}
	}
	s := withCode(t, "a", digest)
	n.startAs(s)
	code := "/run/berth/code/" + hex
	if got := n.call("a", "read", `"`+code+`/run"`); got != `"#!/bin/false\n"` {
		t.Error(got)
	}
	if got := n.call("a", "write", `"`+code+`/new"`); !strings.Contains(got, "read-only file system") {
		t.Error(got)
	}
	if got := n.call("a", "write", `"/run/control"`); got != "null" {
		t.Error(got)
	}
	n.send(link.Control{Stop: &link.Stop{App: "a"}})
	if m := n.receive(); m.Exited == nil {
		t.Fatal(m.Name())
	}
	if f := failing(t, n, s); !strings.Contains(f.Reason, "was not sent") {
		t.Errorf("the code outlived its app: %+v", f)
	}
}

// TestInheritedCgroup hands PID 1 what a machine hands it for an app's cgroup:
// only that app's enforcer may see it.
func TestInheritedCgroup(t *testing.T) {
	procs, err := os.Create(filepath.Join(t.TempDir(), "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	defer procs.Close()
	ours, theirs := connected(t)
	n := launchNative(t, []*os.File{theirs, procs}, profile(), `{"cgroups":[{"app":"a","fds":[4]}]}`)
	_ = theirs.Close()
	n.hostEnd = meet(t, ours, nil)
	n.boot(link.Boot{Hostname: "sandbox"})
	n.start("b")
	n.start("a")
	if got, err := os.ReadFile(procs.Name()); err != nil || string(got) != "0" {
		t.Errorf("%q, %v", got, err)
	}
	if got := n.call("b", "files", "1"); strings.Contains(got, "cgroup.procs") || !strings.Contains(got, "/dev/null") {
		t.Error(got)
	}
}

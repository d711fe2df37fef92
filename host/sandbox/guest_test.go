package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	guest "github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/release/index"
)

// fakeMachine runs a guest that is a function of this test.
type fakeMachine struct {
	guest func(g *fakeGuest) // returns when the guest has ended
}

func (m *fakeMachine) Name() string           { return "fake" }
func (m *fakeMachine) Describe() string       { return "fake" }
func (m *fakeMachine) Profile() guest.Profile { return guest.ProfileVM }
func (m *fakeMachine) Boundary() machine.Boundary {
	return machine.BoundaryVM
}
func (m *fakeMachine) ShareSource() string                         { return machine.SourceP9 }
func (m *fakeMachine) Landlock(img *image.Image) (abi, errata int) { return 11, img.Index.Errata }

func (m *fakeMachine) Start(ctx context.Context, c machine.Config) (machine.Instance, error) {
	host, theirs := net.Pipe()
	i := &fakeInstance{Conn: host, dir: c.Dir, done: make(chan struct{}), kill: make(chan struct{})}
	go func() {
		defer close(i.done)
		m.guest(&fakeGuest{fixed: 0b111, conn: theirs, killed: i.kill})
		theirs.Close()
		runtimedir.Remove(c.Dir.Path)
	}()
	return i, nil
}

type fakeInstance struct {
	net.Conn
	dir  *runtimedir.Dir
	done chan struct{}
	once sync.Once
	kill chan struct{}
}

func (i *fakeInstance) Link() net.Conn         { return i.Conn }
func (i *fakeInstance) BindPath(string) string { return "" }
func (i *fakeInstance) Notes() []string        { return nil }
func (i *fakeInstance) Limit(string, policy.Limits) error {
	return nil
}
func (i *fakeInstance) Kill() { i.once.Do(func() { close(i.kill); i.Conn.Close() }) }
func (i *fakeInstance) Wait() machine.End {
	<-i.done
	return machine.End{}
}

// fakeErrata are those whose fix the image of a fake machine promises.
const fakeErrata = 0b101

// fakeGuest is the guest's side of the link.
type fakeGuest struct {
	fixed   int // errata
	conn    net.Conn
	killed  chan struct{}
	session *link.Session
	control *link.ControlConn
	got     []string // names of the host's messages
}

// boot does what a good init does until it has its configuration.
func (g *fakeGuest) boot() error {
	var err error
	if g.session, err = link.Guest(context.Background(), g.conn); err != nil {
		return err
	}
	_, stream, err := g.session.Accept()
	if err != nil {
		return err
	}
	g.control = link.NewControl(stream)
	if _, err := g.control.Receive(); err != nil {
		return err
	}
	return g.control.Send(link.Control{Booted: &link.Booted{Kernel: "7.3.4", ABI: 11, Errata: g.fixed}})
}

// serve takes code and answers each message of the host until the link ends.
func (g *fakeGuest) serve(answer func(link.Control) []link.Control) {
	go func() {
		for {
			header, stream, err := g.session.Accept()
			if err != nil {
				return
			}
			if header.Type == link.StreamCode {
				io.CopyN(io.Discard, stream, header.Size)
			}
			stream.SendReply(nil)
			stream.Close()
		}
	}()
	for {
		m, err := g.control.Receive()
		if err != nil {
			return
		}
		g.got = append(g.got, m.Name())
		if m.Shutdown != nil {
			g.control.Send(link.Control{Down: &link.Down{}})
			g.session.Close()
			return
		}
		for _, a := range answer(m) {
			if g.control.Send(a) != nil {
				return
			}
		}
	}
}

// enforced is an honest report about a start.
func enforced(s *link.Start) *link.Enforced {
	return &link.Enforced{App: s.App, PolicySHA256: policy.Digest(s.Policy), ABI: 11, Steps: guest.Confirmed(guest.ProfileVM)}
}

func announce(exports ...string) json.RawMessage {
	var list []string
	for _, e := range exports {
		list = append(list, fmt.Sprintf(`{"name":%q}`, e))
	}
	return json.RawMessage(`{"type":"announce","protocol":1,"exports":[` + strings.Join(list, ",") + `]}`)
}

// startFake starts a sandbox with one app on a fake guest.
func startFake(t *testing.T, g func(*fakeGuest)) (*sandbox.Sandbox, error) {
	t.Helper()
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	must(t, err)
	s, err := sandbox.Start(t.Context(), sandbox.Options{
		Machine: &fakeMachine{g}, Image: &image.Image{Index: index.Index{Landlock: 11, Errata: fakeErrata}}, Runtime: rt, BootTimeout: 5 * time.Second,
		Apps: []sandbox.App{world{}.probe(t, "", func(p *policy.Policy) { p.Exports = []string{"read"} })},
	})
	if err == nil {
		t.Cleanup(func() { s.Close(context.Background()) })
	}
	return s, err
}

// What a guest reports about enforcement is compared with what the host wants,
// and the app is not let go if it differs.
func TestUntrueEnforcement(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*link.Enforced)
		want  string
	}{
		{"honest", func(*link.Enforced) {}, ""}, // control
		{"an erratum", nil, "fixes of Landlock's errata 0x1, the machine promises 0x5"},
		{"another policy", func(e *link.Enforced) { e.PolicySHA256 = strings.Repeat("0", 64) }, "the guest enforces policy sha256 0000"},
		{"no policy", func(e *link.Enforced) { e.PolicySHA256 = "" }, "the guest enforces policy sha256"},
		{"a lower ABI", func(e *link.Enforced) { e.ABI = 4 }, "Landlock ABI 4"},
		{"no landlock step", func(e *link.Enforced) {
			e.Steps = slices.DeleteFunc(slices.Clone(e.Steps), func(s string) bool { return s == guest.StepLandlock })
		}, "requires what the guest has not done: landlock"},
		{"no records", func(e *link.Enforced) {
			e.Steps = slices.DeleteFunc(slices.Clone(e.Steps), func(s string) bool { return s == guest.StepRecords })
		}, "requires what the guest has not done: records"},
		{"no steps", func(e *link.Enforced) { e.Steps = nil }, "requires what the guest has not done: cgroup, "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			_, err := startFake(t, func(g *fakeGuest) {
				if c.spoil == nil {
					g.fixed = 0b001
				}
				if g.boot() != nil {
					return
				}
				g.serve(func(m link.Control) []link.Control {
					switch {
					case m.Start != nil:
						e := enforced(m.Start)
						if c.spoil != nil {
							c.spoil(e)
						}
						return []link.Control{{Enforced: e}}
					case m.Go != nil:
						return []link.Control{{Ready: &link.Ready{App: "probe", Announce: announce("read")}}}
					}
					return nil
				})
				got = g.got
			})
			if c.want == "" {
				must(t, err)
				return
			}
			contains(t, err, c.want)
			if slices.Contains(got, "go") {
				t.Errorf("the host let the app go: %v", got)
			}
		})
	}
}

// badGuests end a start with an error that has these parts.
var badGuests = []struct {
	name  string
	guest func(*fakeGuest)
	want  []string
}{
	{"never answers", func(g *fakeGuest) { <-g.killed }, []string{"did not answer within 5s"}},
	{"hangs up", func(g *fakeGuest) { g.conn.Close() }, []string{"cannot boot sandbox on machine fake"}},
	{"speaks another version", func(g *fakeGuest) {
		var hello struct{ Nonce string }
		if json.NewDecoder(g.conn).Decode(&hello) == nil {
			fmt.Fprintf(g.conn, "{\"berth\":\"link\",\"nonce\":%q,\"error\":\"no common link version\"}\n", hello.Nonce)
		}
		<-g.killed
	}, []string{"no common link version"}},
	{"fails a boot step", func(g *fakeGuest) {
		if g.bootFailing("mount share \"w\"", "no such folder") == nil {
			g.session.Close()
		}
	}, []string{"no such folder"}},
	{"sends garbage for control", func(g *fakeGuest) {
		session, err := link.Guest(context.Background(), g.conn)
		if err != nil {
			return
		}
		_, stream, _ := session.Accept()
		stream.Write([]byte("{\"no\":\"such message\"}\n"))
		<-g.killed
	}, []string{"the guest broke the link"}},
	{"says nothing of the app", func(g *fakeGuest) {
		if g.boot() == nil {
			g.serve(func(m link.Control) []link.Control {
				if m.Start != nil {
					g.session.Close()
				}
				return nil
			})
		}
	}, []string{`app "probe"`, sandbox.ErrEnded.Error()}},
	{"passes on an announcement that is none", func(g *fakeGuest) {
		if g.boot() != nil {
			return
		}
		g.serve(func(m link.Control) []link.Control {
			switch {
			case m.Start != nil:
				return []link.Control{{Enforced: enforced(m.Start)}}
			case m.Go != nil:
				return []link.Control{{Ready: &link.Ready{App: "probe", Announce: announce("read", "read")}}}
			}
			return nil
		})
	}, []string{`export "read" is announced twice`}},
	{"talks of other apps and opens streams", func(g *fakeGuest) {
		if g.boot() != nil {
			return
		}
		for _, kind := range []string{"share", "code", "what"} {
			g.session.OpenStream(link.StreamHeader{Type: kind, Share: "../../etc"})
		}
		g.serve(func(m link.Control) []link.Control {
			if m.Start != nil {
				return []link.Control{
					{Ready: &link.Ready{App: "other", Announce: announce("x")}},
					{Exited: &link.Exited{App: "other"}},
					{Pong: &link.Ping{N: 1 << 60}},
					{Failed: &link.Failed{App: "probe", Step: "seccomp", Reason: "no such filter"}},
				}
			}
			return nil
		})
	}, []string{`step "seccomp": no such filter`}},
}

func TestBadGuests(t *testing.T) {
	for _, c := range badGuests {
		t.Run(c.name, func(t *testing.T) {
			_, err := startFake(t, c.guest)
			contains(t, err, c.want...)
		})
	}
}

func (g *fakeGuest) bootFailing(step, reason string) error {
	var err error
	if g.session, err = link.Guest(context.Background(), g.conn); err != nil {
		return err
	}
	_, stream, err := g.session.Accept()
	if err != nil {
		return err
	}
	g.control = link.NewControl(stream)
	return errors.Join(
		g.control.Send(link.Control{Failed: &link.Failed{Step: step, Reason: reason}}),
		g.control.Send(link.Control{Down: &link.Down{Reason: reason}}),
	)
}

// A guest that stops answering is ended, and whoever waits is told.
func TestSilentGuest(t *testing.T) {
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	must(t, err)
	app := world{}.probe(t, "", func(p *policy.Policy) { p.Exports = []string{"read"} })
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s, err := sandbox.Start(t.Context(), sandbox.Options{
			Machine: &fakeMachine{func(g *fakeGuest) {
				if g.boot() == nil {
					g.serve(func(m link.Control) []link.Control {
						switch {
						case m.Start != nil:
							return []link.Control{{Enforced: enforced(m.Start)}}
						case m.Go != nil:
							return []link.Control{{Ready: &link.Ready{App: "probe", Announce: announce("read")}}}
						case m.Ping != nil && time.Since(begin) < time.Minute:
							return []link.Control{{Pong: m.Ping}}
						}
						return nil
					})
				}
			}}, Image: &image.Image{Index: index.Index{Landlock: 11}}, Runtime: rt, Apps: []sandbox.App{app},
		})
		must(t, err)
		<-s.Done()
		contains(t, s.Err(), "the guest has not answered for")
		if after := time.Since(begin); after < time.Minute || after > 3*time.Minute {
			t.Errorf("it was ended after %s", after)
		}
		s.Close(t.Context())
	})
}

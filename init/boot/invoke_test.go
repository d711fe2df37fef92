package boot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// caller is the request to start an app that may call one export of app b.
func caller(t *testing.T, app string) link.Start {
	t.Helper()
	s := request(t, app)
	p, err := policy.Parse(s.Policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Invoke = []policy.Invoke{{App: "b", Exports: []string{"echo"}}}
	if s.Policy, err = p.Encode(); err != nil {
		t.Fatal(err)
	}
	return s
}

// still makes sure that others are served: the host's calls of the caller and of
// the called app, and control messages.
func (n *native) still(t *testing.T, after string) {
	t.Helper()
	for _, app := range []string{"a", "b", "good"} {
		if got := n.call(app, "echo", `"x"`); got != `"x"` {
			t.Errorf("after %s app %s answers %s", after, app, got)
		}
	}
	if got := n.call("good", "hand", `{"say":"{\"type\":\"call\",\"id\":\"1\",\"export\":\"echo\",\"input\":7}\n"}`); got != `["{\"type\":\"result\",\"output\":7}"]` {
		t.Errorf("after %s another app's call gives %s", after, got)
	}
}

// TestHostileCallers: whatever an app hands over costs its own calls and nobody
// else's.
func TestHostileCallers(t *testing.T) {
	n := bootedNative(t)
	n.start("b")
	n.startAs(caller(t, "good"))
	good := `{\"type\":\"call\",\"id\":\"1\",\"export\":\"echo\",\"input\":7}\n`
	for _, c := range []struct {
		name, hand string
		want       string // in what the app gets
		ends       bool   // it may call no more
	}{
		{"a call", `{"say":"` + good + `"}`, `"output\":7`, false},
		{"an export that it may not call", `{"say":"{\"type\":\"call\",\"id\":\"1\",\"export\":\"die\"}\n"}`, `denied`, false},
		{"a stream without its export", `{"say":"{\"type\":\"stream\",\"id\":\"1\"}\n"}`, `names the call's export`, false},
		{"hello", `{"say":"{\"type\":\"hello\",\"protocol\":1}\n"}`, `cannot begin with hello`, false},
		{"no JSON", `{"say":"hello\n"}`, `invalid_input`, false},
		{"a huge line", `{"fill":1000000}`, `more than 262144 bytes`, false},
		{"a long ID", `{"say":"{\"type\":\"call\",\"id\":\"` + strings.Repeat("i", 127) + `\",\"export\":\"echo\"}\n"}`, `too long`, false},
		{"a caller of its own", `{"say":"{\"type\":\"call\",\"id\":\"1\",\"export\":\"echo\",\"input\":7,\"caller\":\"good\"}\n"}`, `"output\":7`, false},
		{"connections that are closed", `{"what":"closed","times":50}`, `null`, false},
		{"a file that blocks", `{"say":"` + good + `","block":true,"times":5}`, `"output\":7`, false},
		{"connections that say nothing", `{"keep":true,"times":16}`, `null`, false},
		{"half a line", `{"keep":true,"say":"{","times":16}`, `null`, false},
		{"answers that nobody reads", `{"keep":true,"say":"` + good + `","times":16}`, `null`, false},
		{"more than may be open", `{"keep":true,"block":true,"times":200}`, ``, false},
		{"no descriptor", `{"what":"nothing"}`, `null`, true},
		{"two descriptors", `{"what":"two"}`, `null`, true},
		{"a file", `{"what":"file"}`, `null`, true},
		{"a datagram socket", `{"what":"datagram"}`, `null`, true},
		{"a listening socket", `{"what":"listening"}`, `null`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.startAs(caller(t, "a"))
			if got := n.call("a", "hand", c.hand); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			n.still(t, c.name)
			if c.ends {
				got := n.call("a", "hand", `{"say":"`+good+`"}`)
				if strings.Contains(got, "output") {
					t.Errorf("it goes on calling: %s", got)
				}
			}
			n.send(link.Control{Stop: &link.Stop{App: "a"}})
			if m := n.receive(); m.Exited == nil {
				t.Fatal(m.Name())
			}
		})
	}
}

// TestOpenCallsAreCounted: over the limit a call is refused, and the place of one
// that ends is free again.
func TestOpenCallsAreCounted(t *testing.T) {
	n := bootedNative(t)
	n.start("b")
	n.startAs(caller(t, "a"))
	if got := n.call("a", "hand", fmt.Sprintf(`{"keep":true,"times":%d}`, maxInvokes)); got != "null" {
		t.Error(got)
	}
	say := `{"say":"{\"type\":\"call\",\"id\":\"1\",\"export\":\"echo\",\"input\":7}\n"}`
	if got := n.call("a", "hand", say); !strings.Contains(got, "16 calls of other apps are open, which is the limit") {
		t.Error(got)
	}
	if got := n.call("a", "hand", `{"what":"release"}`); got != "null" {
		t.Error(got)
	}
	for { // until PID 1 has noticed
		if got := n.call("a", "hand", say); strings.Contains(got, `"output\":7`) {
			break
		} else if !strings.Contains(got, "which is the limit") {
			t.Fatal(got)
		}
	}
}

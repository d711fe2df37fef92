package boot

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/tools/testenv"
)

// openFiles counts the descriptors of PID 1, as the host sees them.
func (n *native) openFiles() int {
	n.t.Helper()
	names, err := os.ReadDir("/proc/" + strconv.Itoa(n.cmd.Process.Pid) + "/fd")
	if err != nil {
		testenv.Skipf(n.t, "cannot look at PID 1: %v", err)
	}
	return len(names)
}

// cycle starts an app, calls it and stops it.
func (n *native) cycle() {
	n.t.Helper()
	n.start("a")
	if got := n.call("a", "echo", "1"); got != "1" {
		n.t.Fatal(got)
	}
	n.send(link.Control{Stop: &link.Stop{App: "a"}})
	if m := n.receive(); m.Exited == nil {
		n.t.Fatal(m.Name())
	}
}

func TestNothingIsLeftOfStoppedApps(t *testing.T) {
	n := bootedNative(t)
	n.cycle()
	before := n.openFiles()
	for range 30 {
		n.cycle()
	}
	if after := n.openFiles(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// TestCallStorm has more calls at once than an app may have open, each with
// its own answer, and gives up every third one.
func TestCallStorm(t *testing.T) {
	n := bootedNative(t)
	n.start("a")
	before := n.openFiles()
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 40 {
				want := fmt.Sprintf(`"%d of %d"`, i, worker)
				if i%3 == 0 {
					if s, err := n.openCall("a"); err == nil {
						s.Reset()
					}
					continue
				}
				if got := n.call("a", "echo", want); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
	if got := n.call("a", "echo", "1"); got != "1" {
		t.Error(got)
	}
	n.send(link.Control{Stop: &link.Stop{App: "a"}})
	if m := n.receive(); m.Exited == nil {
		t.Fatal(m.Name())
	}
	if after := n.openFiles(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestCallsOfOneAppAreBounded(t *testing.T) {
	n := bootedNative(t)
	n.start("a")
	n.start("b")
	var open []*link.Stream
	for range maxCalls {
		s, err := n.openCall("a")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	if got := n.call("a", "echo", "1"); !strings.Contains(got, "256 calls are open, which is the limit") {
		t.Error(got)
	}
	if got := n.call("b", "echo", "1"); got != "1" {
		t.Errorf("the other app: %s", got)
	}
	for _, s := range open {
		s.Reset()
	}
	n.start("c") // a trip to PID 1 and back
	for n.call("a", "echo", "1") != "1" {
		if err := n.session.Err(); err != nil { // the deadline of the test
			t.Fatal(err)
		}
	}
}

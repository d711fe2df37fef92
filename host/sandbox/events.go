package sandbox

import (
	"fmt"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/sdk/protocol"
)

// Event is something that happened. Exactly one of the pointers is set.
type Event struct {
	Since time.Duration // since Start was called
	App   string        // "" if it is about the sandbox

	Started  *Started           // the machine runs
	Step     *link.Step         // a boot step is done
	Booted   *link.Booted       // the guest waits for apps
	Enforced *link.Enforced     // every restriction is in place, confirmed by the host; nothing of the app has run
	Ready    *Ready             // the app answers calls
	Exited   *link.Exited       // the app ended, perhaps to be started again
	Failed   *link.Failed       // the app will not run
	Ended    *Ended             // the sandbox is gone
	Denied   *link.DenialRecord // what the kernel recorded
	Name     *Name              // something of a share whose name hosts execute, or is excluded
}

// Started says on what the sandbox runs.
type Started struct {
	Machine string
	Notes   []string
}

// Ready lists what an app offers.
type Ready struct {
	Exports []protocol.Export
}

// Ended says why the sandbox is gone; Console are the guest's last lines if it
// did not end in order.
type Ended struct {
	Reason  string
	Console string
}

// String is the event on one line, for logs.
func (e Event) String() string {
	for _, what := range []struct {
		name string
		set  bool
		v    any
	}{
		{"started", e.Started != nil, e.Started}, {"step", e.Step != nil, e.Step}, {"booted", e.Booted != nil, e.Booted},
		{"enforced", e.Enforced != nil, e.Enforced}, {"ready", e.Ready != nil, nil}, {"exited", e.Exited != nil, e.Exited},
		{"failed", e.Failed != nil, e.Failed}, {"ended", e.Ended != nil, e.Ended}, {"name", e.Name != nil, e.Name}, {"denied", e.Denied != nil, e.Denied},
	} {
		if what.set {
			return fmt.Sprintf("%8.3f s %s %s %+v", e.Since.Seconds(), what.name, e.App, what.v)
		}
	}
	return "nothing"
}

// eventBuffer is how far OnEvent may lag behind before the sandbox waits for it.
const eventBuffer = 256

// emit queues an event. Those about names, of which a guest can cause any number,
// are dropped when OnEvent is too slow. Denials wait for it: what comes meanwhile
// waits in the guest, which counts what it can not keep.
func (s *Sandbox) emit(e Event) {
	e.Since = time.Since(s.started)
	s.happened(e)
	if e.Name != nil {
		select {
		case s.events <- e:
		default:
		}
		return
	}
	select {
	case s.events <- e:
	case <-s.ended: // Ended was the last
	}
}

// tell calls OnEvent until the last event, Ended.
func (s *Sandbox) tell() {
	for e := range s.events {
		if s.o.OnEvent != nil {
			s.o.OnEvent(e)
		}
		if e.Ended != nil {
			return
		}
	}
}

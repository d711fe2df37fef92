package sandbox

import (
	"math"
	"sync"
	"time"

	"github.com/berthos/berth/sdk/protocol"
)

// keptFlights is how many calls that are over are remembered for each app.
const keptFlights = 256

// flights knows which calls of an app were in flight when, so that a record of
// the kernel is tied to its call only if there was no other.
type flights struct {
	mu   sync.Mutex // guards what follows
	apps map[string]*appFlights
}

type appFlights struct {
	open int
	over []time.Time // when the last calls ended, oldest first
	cut  time.Time   // calls that ended up to then are forgotten
}

// begin counts a connection to an app until end is called.
func (f *flights) begin(app string) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.apps == nil {
		f.apps = map[string]*appFlights{}
	}
	a := f.apps[app]
	if a == nil {
		a = &appFlights{}
		f.apps[app] = a
	}
	a.open++
	var once sync.Once
	return func() { once.Do(func() { f.end(a) }) }
}

func (f *flights) end(a *appFlights) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.open--
	a.over = append(a.over, time.Now())
	if len(a.over) > keptFlights {
		a.cut, a.over = a.over[0], a.over[1:]
	}
}

// since counts the connections that were open at any moment since a time, to a
// process or to all of an app.
func (f *flights) since(name string, t time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for of, a := range f.apps {
		if of != name && appOf(of) != name {
			continue
		}
		if !a.cut.Before(t) {
			return math.MaxInt32 // not known: many
		}
		n += a.open
		for _, end := range a.over {
			if !end.Before(t) {
				n++
			}
		}
	}
	return n
}

// lastLine looks, in what an app says in a call, for the line that ends it. It
// knows the beginning of that line as SDKs write it; of one that writes it in
// another way a call ends with its connection.
type lastLine struct {
	head []byte // of the current line
	skip bool   // the rest of it
}

var lastLines = [...]string{
	`{"type":"` + protocol.TypeResult + `"`,
	`{"type":"` + protocol.TypeError + `"`,
}

// begins takes the next bytes and says whether the last line has begun.
func (l *lastLine) begins(p []byte) bool {
	for _, c := range p {
		if c == '\n' {
			l.head, l.skip = l.head[:0], false
		} else if !l.skip {
			l.head = append(l.head, c)
			for _, last := range lastLines {
				if string(l.head) == last {
					return true
				}
			}
			l.skip = len(l.head) > len(lastLines[0])
		}
	}
	return false
}

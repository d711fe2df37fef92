package sandbox

import "github.com/berthos/berth/host/machine"

// Reach is what the process that holds a sandbox has to reach once the machine
// runs. It needs nothing else of the host any more.
type Reach struct {
	Dir    string      // the runtime folder
	Shares []ShareInfo // folders that are served, or watched
	Served bool        // shares are served by this process; else the machine has mounted them
	Limits []string    // folders in which an app's limits are changed and read
}

// confine has the caller lock this process in. The machine runs, and nothing
// that it says has been read.
func (s *Sandbox) confine() error {
	if s.o.Confine == nil {
		return nil
	}
	r := Reach{Dir: s.dir, Shares: s.Shares(), Served: s.o.Machine.ShareSource() == machine.SourceP9}
	if l, ok := s.instance.(machine.Limiter); ok {
		r.Limits = l.LimitDirs()
	}
	return s.o.Confine(r)
}

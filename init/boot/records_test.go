package boot

import (
	"github.com/berthos/berth/init/audit"
)

// fakeAudit is an audit socket whose events a test makes. A mark comes back at
// once, behind them.
type fakeAudit struct {
	events chan audit.Event
}

func (f *fakeAudit) Next() ([]audit.Event, error) { return []audit.Event{<-f.events}, nil }

func (f *fakeAudit) Mark(n uint64) error {
	f.events <- audit.Event{Mark: n}
	return nil
}

func (f *fakeAudit) AskStatus() error { return nil }
func (f *fakeAudit) Close() error     { return nil }

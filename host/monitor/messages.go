package monitor

import (
	"errors"
	"time"

	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/link"
)

// order is what the parent says. Exactly one field is set.
type order struct {
	App     *App     `json:"app,omitempty"`     // before Start: run it; its code follows
	Start   *Spec    `json:"start,omitempty"`   // once: boot, with the apps so far
	Replace *replace `json:"replace,omitempty"` // its code follows
	Detach  *none    `json:"detach,omitempty"`  // from now on the parent may go
	Stop    *none    `json:"stop,omitempty"`
}

type none struct{}

// App is an app to run. Its secrets are in this message and, from there, on the
// link to the guest; the monitor is told no others.
type App struct {
	Policy   []byte            `json:"policy"`   // of policy.Encode
	Manifest string            `json:"manifest"` // its path on the host, for explanations
	Secrets  map[string]string `json:"secrets,omitempty"`
	Image    []byte            `json:"-"` // an app image, behind the message
}

// replace asks for another version of an app.
type replace struct {
	N   int64 `json:"n"`
	App App   `json:"app"`
}

// Spec says what to boot, and where. It is what a monitor gets of the user's
// world: no environment variable and no working directory means anything to it.
type Spec struct {
	Name     string          `json:"name,omitempty"`    // of a long-lived sandbox
	Log      string          `json:"log,omitempty"`     // where its log is, for who asks
	Audited  bool            `json:"audited,omitempty"` // an auditor is inherited
	Machine  string          `json:"machine"`           // machine.QEMU or machine.Native
	Accel    qemu.Accel      `json:"accel,omitempty"`
	ImageDir string          `json:"image_dir"`
	Image    string          `json:"image"`   // sha256 that its index must have
	Runtime  string          `json:"runtime"` // the folder of all sandboxes
	Shares   []sandbox.Share `json:"shares,omitempty"`
	// HostExecuted as in sandbox.Options.
	HostExecuted []string `json:"host_executed,omitempty"`
}

// report is what the monitor says. Exactly one field is set.
type report struct {
	Started  *Started        `json:"started,omitempty"`
	Failed   *Failure        `json:"failed,omitempty"` // instead of Started: nothing is left
	Event    *Event          `json:"event,omitempty"`
	Log      *link.LogRecord `json:"log,omitempty"`
	Replaced *replaced       `json:"replaced,omitempty"`
	Ended    *Ended          `json:"ended,omitempty"` // the last
}

// Started describes a sandbox whose apps answer.
type Started struct {
	ID     string              `json:"id"`
	Since  time.Time           `json:"since"`
	Apps   []AppState          `json:"apps"`
	Shares []sandbox.ShareInfo `json:"shares,omitempty"`
	Notes  []string            `json:"notes,omitempty"`
}

// AppState is how an app is enforced; what the guest said, compared by the monitor.
type AppState struct {
	Name     string        `json:"name"`
	Enforced link.Enforced `json:"enforced"`
}

// Failure is an error with its hint.
type Failure struct {
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
}

type replaced struct {
	N      int64     `json:"n"`
	App    *AppState `json:"app,omitempty"`
	Failed *Failure  `json:"failed,omitempty"`
}

// Event is what is worth a line while the sandbox runs.
type Event struct {
	App    string         `json:"app,omitempty"`
	Exited *link.Exited   `json:"exited,omitempty"`
	Failed *link.Failed   `json:"failed,omitempty"`
	Name   *sandbox.Name  `json:"name,omitempty"`
	Ended  *sandbox.Ended `json:"ended,omitempty"`
}

// Ended says why the sandbox is gone; "" if it was told to.
type Ended struct {
	Reason string `json:"reason,omitempty"`
}

var errOrder = errors.New("an order must be exactly one thing")

// check refuses an order that is none, or several.
func (o order) check() error {
	n := 0
	for _, set := range []bool{o.App != nil, o.Start != nil, o.Replace != nil, o.Detach != nil, o.Stop != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return errOrder
	}
	return nil
}

// check refuses a report that is none, or several.
func (r report) check() error {
	n := 0
	for _, set := range []bool{r.Started != nil, r.Failed != nil, r.Event != nil, r.Log != nil, r.Replaced != nil, r.Ended != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return errors.New("a report must be exactly one thing")
	}
	return nil
}

// trim keeps a report below its limit: a guest chooses the texts in it.
func trim(s string) string {
	const most = 64 << 10
	if len(s) > most {
		return s[:most] + " …"
	}
	return s
}

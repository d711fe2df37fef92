// Package control owns the unix socket through which other berth commands
// reach a running sandbox: to describe it, to call its apps, to follow its logs.
package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/sdk/protocol"
)

// Socket is the socket's name in the sandbox's runtime folder.
const Socket = "control.sock"

// maxLine bounds a request and a reply, in bytes.
const maxLine = 4 << 20

// Kinds of connections.
const (
	kindDescribe = "describe" // answered by a reply with a Description
	kindCall     = "call"     // answered by a reply, then sdk/protocol with the app
	kindLogs     = "logs"     // answered by a reply, then link.LogRecord lines
	kindWhy      = "why"      // answered by a reply whose error says how App or its sandbox died, if it did
	kindNames    = "names"    // answered by a reply with Names
	kindStop     = "stop"     // answered by a reply; the sandbox ends, if it is a long-lived one
	kindDenials  = "denials"  // answered by a reply with Denials, then link.DenialRecord lines
)

type request struct {
	Kind   string `json:"kind"`
	App    string `json:"app,omitempty"`
	Export string `json:"export,omitempty"` // kindCall: of the call that comes

	SinceUnixNano int64 `json:"since_unix_nano,omitempty"` // kindDenials, kindNames
	WaitMillis    int64 `json:"wait_millis,omitempty"`     // kindDenials
}

type reply struct {
	Error       string       `json:"error,omitempty"`
	Description *Description `json:"description,omitempty"`
	Denials     *Denials     `json:"denials,omitempty"`
	Names       *Names       `json:"names,omitempty"`
}

// Names is what happened, since a time, to names of the sandbox's shares that
// hosts execute or that are excluded.
type Names struct {
	List []Name `json:"list"`
	Cut  bool   `json:"cut,omitempty"` // there was more
}

// Name is one of them: a change that was refused, or what came into being where
// nobody could refuse it.
type Name struct {
	HostDir string `json:"host_dir"`
	Path    string `json:"path"`  // as apps see it
	Place   string `json:"place"` // below HostDir
	Op      string `json:"op"`
	Refused bool   `json:"refused"`
	Why     string `json:"why"` // a sentence
}

// Denials is what the kernel recorded of an app since a time.
type Denials struct {
	Kept     bool                `json:"kept"`     // the machine reads the kernel's records
	Complete bool                `json:"complete"` // everything of until now is here, suppressed or lost
	Records  []link.DenialRecord `json:"-"`        // lines behind the reply
	Calls    int                 `json:"calls"`    // connections that were open meanwhile
}

// Description says what a sandbox is and what runs in it.
type Description struct {
	ID      string    `json:"id"`
	PID     int       `json:"pid"`            // of the berth that holds it
	Name    string    `json:"name,omitempty"` // of a long-lived sandbox
	Log     string    `json:"log,omitempty"`  // where it writes, if it is one
	Machine string    `json:"machine"`
	Image   string    `json:"image"` // sha256 of the image index, hex
	Started time.Time `json:"started"`
	Apps    []App     `json:"apps"`
}

// App is one app of a sandbox.
type App struct {
	Name     string            `json:"name"`
	Policy   []byte            `json:"policy"`   // the bytes of policy.Encode
	Manifest string            `json:"manifest"` // its path on the host, for explanations
	Exports  []protocol.Export `json:"exports"`
	Shares   []Share           `json:"shares"`
	Ready    bool              `json:"ready"`
	Error    string            `json:"error,omitempty"` // why it does not run any more
}

// Share is a folder of the host as the app sees it.
type Share struct {
	HostDir  string   `json:"host_dir"`
	Path     string   `json:"path"`
	Aliases  []string `json:"aliases,omitempty"`
	ReadOnly bool     `json:"read_only,omitempty"`
	Exclude  []string `json:"exclude,omitempty"`
}

func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// readLine reads one JSON line byte by byte, so that nothing of what follows
// it is taken from the connection.
func readLine(r io.Reader, v any) error {
	var line []byte
	var one [1]byte
	for len(line) < maxLine {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return err
		}
		if one[0] == '\n' {
			dec := json.NewDecoder(bytes.NewReader(line))
			dec.DisallowUnknownFields()
			return dec.Decode(v)
		}
		line = append(line, one[0])
	}
	return fmt.Errorf("line longer than %d bytes", maxLine)
}

var _ link.Half = (*net.UnixConn)(nil)

// maxAddress is the longest path that a unix socket's address can hold.
const maxAddress = 107

// address returns the socket's address. Where its path does not fit into one,
// it leads through an open descriptor of the folder, until release.
func address(name string) (addr *net.UnixAddr, release func(), err error) {
	if len(name) <= maxAddress {
		return &net.UnixAddr{Name: name, Net: "unix"}, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil, nil, err
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(name))
	return &net.UnixAddr{Name: short, Net: "unix"}, func() { dir.Close() }, nil
}

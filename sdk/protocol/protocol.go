// Package protocol owns the app protocol: what is spoken on the connections of
// an app's inherited listening socket (spec.md). It is the same in every language.
package protocol

import "encoding/json"

// Version is the protocol version that this build speaks.
const Version = 1

// EnvListenFD names the environment variable that holds the number of the
// inherited listening unix socket.
const EnvListenFD = "BERTH_LISTEN_FD"

// Further environment variables of an app.
const (
	EnvExports = "BERTH_EXPORTS" // the exports that this process serves, with commas; unset: all
	EnvInvoke  = "BERTH_INVOKE"  // "app=descriptor" with commas: the apps that it may call
)

// Limits that are checked before memory is taken, in bytes. Larger payloads than
// MaxMessage belong on a call's raw stream.
const (
	MaxMessage  = 8 << 20   // one JSON line, newline included
	MaxInvoke   = 256 << 10 // the first line of a call from app to app
	MaxAnnounce = 1 << 20   // the announcement's line
	MaxText     = 16 << 10  // Message.Text and Error.Message; what is longer is cut by the sender
	MaxID       = 128       // Request.ID
	MaxName     = 63        // an export's name: a letter, then letters, digits, '_' and '-'
)

// Request is the first line of a connection, written by the side that connects.
type Request struct {
	Type     string          `json:"type"`               // TypeHello, TypeCall, TypeStream
	Protocol int             `json:"protocol,omitempty"` // TypeHello
	ID       string          `json:"id,omitempty"`       // TypeCall, TypeStream
	Export   string          `json:"export,omitempty"`   // TypeCall; on TypeStream that of its call, if given
	Input    json.RawMessage `json:"input,omitempty"`    // TypeCall
	Stream   bool            `json:"stream,omitempty"`   // TypeCall: a TypeStream connection with this ID comes too
	// Caller, on a TypeCall, is the app that calls; empty: whoever runs the
	// sandbox. Berth alone sets it.
	Caller string `json:"caller,omitempty"`
}

// Kinds of connections and, after a TypeCall or TypeHello, of further lines
// from the connecting side.
const (
	TypeHello    = "hello"
	TypeCall     = "call"
	TypeStream   = "stream"   // raw bytes both ways after this line; each side half-closes when done
	TypeCancel   = "cancel"   // on a call's connection; closing the connection means the same
	TypeShutdown = "shutdown" // on the hello connection: finish and exit
)

// Message is one line from the app. On the hello connection the first is an
// Announce; on a call's connection any number of progress and log messages
// come before exactly one result or error, which is the last.
type Message struct {
	Type     string          `json:"type"`
	Protocol int             `json:"protocol,omitempty"` // TypeAnnounce
	Exports  []Export        `json:"exports,omitempty"`  // TypeAnnounce
	Output   json.RawMessage `json:"output,omitempty"`   // TypeResult
	Error    *Error          `json:"error,omitempty"`    // TypeError
	Value    float64         `json:"value,omitempty"`    // TypeProgress
	Total    float64         `json:"total,omitempty"`    // TypeProgress; 0: unknown
	Text     string          `json:"text,omitempty"`     // TypeProgress, TypeLog
	Level    string          `json:"level,omitempty"`    // TypeLog: debug, info, warn, error
}

// Kinds of messages from the app.
const (
	TypeAnnounce = "announce"
	TypeResult   = "result"
	TypeError    = "error"
	TypeProgress = "progress"
	TypeLog      = "log"
)

// Export is one function an app offers, with JSON Schemas of input and output.
type Export struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
}

// Error is a failed call. Code is one of the Code constants. Op, Path and Errno
// are set when a system call failed: the name of the operation ("open",
// "mkdir"), the path it was given, and the symbolic errno ("EACCES"). With
// CodeDenied, Path is the export that was not called, "<app>.<export>".
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Op      string `json:"op,omitempty"`
	Path    string `json:"path,omitempty"`
	NewPath string `json:"new_path,omitempty"` // the second path of a rename, link or symlink
	Errno   string `json:"errno,omitempty"`
	Access  string `json:"access,omitempty"` // AccessRead or AccessWrite, where the app knows which it wanted
	App     string `json:"app,omitempty"`    // the app that failed, if it was called by the one that answers
}

// What a failed operation wanted, in Error.Access.
const (
	AccessRead  = "read"
	AccessWrite = "write"
)

func (e *Error) Error() string { return e.Message }

// Codes of failed calls.
const (
	CodeUnknownExport = "unknown_export"
	CodeInvalidInput  = "invalid_input"
	CodeCanceled      = "canceled"
	CodeSystem        = "system"   // a system call failed: see Op, Path, Errno
	CodeFailed        = "failed"   // the app's own error
	CodeInternal      = "internal" // the app panicked or broke the protocol
	CodeDenied        = "denied"   // of a call from app to app: the caller's policy does not allow it
)

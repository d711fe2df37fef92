// Package manifest owns berth.yml: what an app's author declares. Parse turns
// its bytes into a checked value, or into every fault of it at once.
package manifest

// SchemaVersion is the version of the manifest format that Parse reads.
const SchemaVersion = 1

// Manifest is a checked manifest. What a manifest leaves out has its default.
type Manifest struct {
	File          string // as given to Parse, for messages
	Name          string
	Version       string
	SchemaVersion int
	Description   string
	Runtime       Runtime
	Run           []string // argv; empty: the runtime's default
	Build         []string // argv, run on the host by `berth dev`; empty: the default for the app's language
	Capabilities  []Capability
	Exports       []Export
	Secrets       []Secret
	HostExecuted  []string // names that hosts execute and that the app wants to write all the same
	OnInstall     []string
	OnAgentReady  []string
	Expose        Expose
	Governs       bool
	Exempt        bool // governance.exempt
	Resources     Resources
	keys          map[string]Pos
}

// Pos is a place in the file; lines and columns count from 1, columns in
// characters. The zero Pos is nowhere.
type Pos struct {
	Line int `json:"line"`
	Col  int `json:"col"`
}

// At returns where a key stands: a top-level one ("run"), or one below it
// ("resources.gpu"). Keys that the manifest leaves out have the zero Pos.
func (m Manifest) At(key string) Pos { return m.keys[key] }

// Runtime says what has to exist in the guest for the app to run.
type Runtime string

// The runtimes. RuntimeNone is a static executable and needs nothing.
const (
	RuntimeNone    Runtime = "none"
	RuntimePosix   Runtime = "posix"
	RuntimePython  Runtime = "python"
	RuntimeNode    Runtime = "node"
	RuntimeBrowser Runtime = "browser"
)

// Export is one function that the app offers.
type Export struct {
	Pos
	Name         string
	Description  string
	Input        []Field
	Output       []Field
	Capabilities []Capability // nil: all of the app's
	Narrowed     bool         // Capabilities was given, perhaps empty
	Secrets      []string     // of a narrowed export: which of the app's secrets it is given
}

// Field is one member of an export's input or output.
type Field struct {
	Pos
	Name        string
	Type        Type
	Description string
	Optional    bool
}

// Type is a field's JSON type.
type Type string

// The types of fields.
const (
	TypeString  Type = "string"
	TypeNumber  Type = "number"
	TypeInteger Type = "integer"
	TypeBoolean Type = "boolean"
	TypeObject  Type = "object"
	TypeArray   Type = "array"
)

// Secret is a credential that the app needs. With For and Header it is never
// given to the app but added on the host to requests to that host.
type Secret struct {
	Pos
	Name   string
	For    string // host pattern, as in network:host
	Header string
}

// Expose says what a person may watch.
type Expose struct {
	Browser  bool
	Terminal bool
	Preview  bool
}

// Resources bounds the app. CPUMilli is thousandths of one CPU, MemoryMB is
// MiB, Pids counts threads.
type Resources struct {
	CPUMilli int
	MemoryMB int
	Pids     int
	GPU      int
}

// DefaultResources apply where a manifest names none.
func DefaultResources() Resources {
	return Resources{CPUMilli: 1000, MemoryMB: 256, Pids: 128}
}

// Bounds of a manifest. What exceeds them is refused before memory is taken
// for it.
const (
	MaxBytes        = 256 << 10
	maxLines        = 8192
	maxLineBytes    = 8192
	maxTokens       = 16384
	maxDepth        = 16
	maxBlank        = 256 // empty lines in a row
	maxKeys         = 512 // of one block mapping
	maxCapabilities = 256
	maxPorts        = 64 // of each of network:connect and network:bind
	maxExports      = 128
	maxFields       = 64
	maxSecrets      = 64
	maxHostExecuted = 64
	maxCommands     = 64
	maxArgs         = 64
	maxDescription  = 2048
	maxText         = 4096
	maxScope        = 1024
	maxName         = 63
	maxErrors       = 50
)

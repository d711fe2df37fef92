package link

import "encoding/json"

// StreamHeader is the first line of every stream of a session: JSON, at most
// MaxHeader bytes, ended by a newline. The opener writes it.
type StreamHeader struct {
	Type   string `json:"type"`             // one of the Stream constants
	App    string `json:"app,omitempty"`    // StreamCall: which app
	Share  string `json:"share,omitempty"`  // StreamShare: which share
	SHA256 string `json:"sha256,omitempty"` // StreamCode: digest of the bytes that follow
	Size   int64  `json:"size,omitempty"`   // StreamCode: how many bytes follow
}

// Kinds of streams, with who opens them.
const (
	StreamControl = "control" // host: Control messages, JSON lines both ways; exactly one a session
	StreamCall    = "call"    // host: answered by StreamReply, then spliced to a connection of the app (sdk/protocol)
	StreamCode    = "code"    // host: an app image; answered by StreamReply once verified
	StreamShare   = "share"   // guest: 9P2000.L, the host serves
	StreamLog     = "log"     // guest: LogRecord lines; exactly one a session
	StreamDenials = "denials" // guest: DenialRecord lines; exactly one a session, in a VM only
)

// StreamReply is the one-line answer to a header where the table above says so.
type StreamReply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Control is one message on the control stream. Exactly one field is set.
// Host to guest: Boot, Start, Go, Stop, Time, Shutdown, Ping, Sync.
// Guest to host: Step, Booted, Enforced, Ready, Failed, Exited, Down, Pong.
type Control struct {
	Boot     *Boot     `json:"boot,omitempty"`
	Start    *Start    `json:"start,omitempty"`
	Go       *Go       `json:"go,omitempty"`
	Stop     *Stop     `json:"stop,omitempty"`
	Time     *Time     `json:"time,omitempty"`
	Shutdown *Shutdown `json:"shutdown,omitempty"`
	Ping     *Ping     `json:"ping,omitempty"`
	Sync     *Ping     `json:"sync,omitempty"` // answered on StreamDenials, in a VM only

	Step     *Step     `json:"step,omitempty"`
	Booted   *Booted   `json:"booted,omitempty"`
	Enforced *Enforced `json:"enforced,omitempty"`
	Ready    *Ready    `json:"ready,omitempty"`
	Failed   *Failed   `json:"failed,omitempty"`
	Exited   *Exited   `json:"exited,omitempty"`
	Down     *Down     `json:"down,omitempty"`
	Pong     *Ping     `json:"pong,omitempty"`
}

// Boot is the boot configuration, the first control message.
type Boot struct {
	UnixNano int64   `json:"unix_nano"` // the host's clock
	Hostname string  `json:"hostname"`
	ABI      int     `json:"landlock_abi"`              // what the machine promises; 0: at least 4, as found
	Errata   int     `json:"landlock_errata,omitempty"` // bit N-1: that erratum N is fixed
	Shares   []Share `json:"shares"`
}

// Share is one folder of the host that the guest may mount.
type Share struct {
	Name     string   `json:"name"`
	Path     string   `json:"path"`              // where apps see it: /workspace or a name below it
	Aliases  []string `json:"aliases,omitempty"` // further absolute paths, such as the host's own
	ReadOnly bool     `json:"read_only,omitempty"`
	Source   string   `json:"source"` // "9p": over a StreamShare; "bind": already mounted at BindPath
	BindPath string   `json:"bind_path,omitempty"`
}

// Start asks for an app. Policy holds the exact bytes of policy.Encode.
type Start struct {
	App         string   `json:"app"`
	Worker      string   `json:"worker,omitempty"` // which process of the policy; empty: the main one
	Policy      []byte   `json:"policy"`
	CodeDir     string   `json:"code_dir,omitempty"` // below the verified root; else a StreamCode with the policy's digest came first
	UID         uint32   `json:"uid"`
	GID         uint32   `json:"gid"`
	Shares      []string `json:"shares"`                 // names from Boot
	ReadyMillis int64    `json:"ready_millis,omitempty"` // from start to ready; 0: 30 s, at most 10 min
	Ablate      []string `json:"ablate,omitempty"`       // only the test image's enforcer accepts any
	// Secrets are values by name: exactly those that the process's policy names.
	// They are never logged.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Go lets an enforced app execute; it answers Enforced.
type Go struct {
	App string `json:"app"`
}

// Stop ends an app and forgets it.
type Stop struct {
	App    string `json:"app"`
	Reason string `json:"reason,omitempty"`
}

// Time sets the guest's clock when it is off by more than half a second.
type Time struct {
	UnixNano int64 `json:"unix_nano"`
}

// Shutdown ends the sandbox in order.
type Shutdown struct{}

// Ping is answered by Pong with the same number.
type Ping struct {
	N int64 `json:"n"`
}

// Step reports one boot step. Nanos is its duration.
type Step struct {
	Name  string `json:"name"`
	Nanos int64  `json:"nanos"`
	Error string `json:"error,omitempty"`
}

// Booted says that the boot phase is over.
type Booted struct {
	Kernel    string `json:"kernel"` // uname release
	ABI       int    `json:"landlock_abi"`
	Errata    int    `json:"landlock_errata,omitempty"` // that are fixed, as in Boot
	MemoryKiB int64  `json:"memory_used_kib"`           // MemTotal - MemAvailable
}

// Enforced says that every step before exec is done and waits for Go.
type Enforced struct {
	App          string   `json:"app"`
	PolicySHA256 string   `json:"policy_sha256"` // of the bytes the enforcer parsed
	ABI          int      `json:"landlock_abi"`
	Steps        []string `json:"steps"`            // what was done, in order
	Weaker       []string `json:"weaker,omitempty"` // separations that do not hold on this machine
}

// Ready carries the app's announcement (sdk/protocol.Announce), unparsed.
type Ready struct {
	App      string          `json:"app"`
	Announce json.RawMessage `json:"announce"`
}

// Failed says why an app (or, with App empty, the sandbox) could not be started.
type Failed struct {
	App    string `json:"app,omitempty"`
	Step   string `json:"step"`
	Reason string `json:"reason"`
}

// Exited says that a running app ended. With RestartMillis > 0 it is started
// again after that time, and Enforced and Ready follow anew.
type Exited struct {
	App           string `json:"app"`
	Status        string `json:"status"` // "exit status 2", "signal: killed", …
	RestartMillis int64  `json:"restart_millis,omitempty"`
}

// Down is the guest's last message.
type Down struct {
	Reason string `json:"reason,omitempty"`
}

// LogRecord is one line that an app printed, or of the guest's own log
// (App empty). Dropped counts lines lost before this one.
type LogRecord struct {
	App     string `json:"app,omitempty"`
	Stream  string `json:"stream"` // "stdout", "stderr", "init", "kernel"
	Line    string `json:"line"`
	Dropped int64  `json:"dropped,omitempty"`

	// Denied is set by the host, where Line tells of a denial: never by a guest.
	Denied *Denied `json:"denied,omitempty"`
}

// Denied is a DenialRecord as the host understands it.
type Denied struct {
	Kind     string   `json:"kind"` // "landlock", "seccomp"; "counts" if only what is missing is told
	Serial   uint64   `json:"serial,omitempty"`
	UnixNano int64    `json:"unix_nano,omitempty"` // the guest's clock
	App      string   `json:"app,omitempty"`
	Worker   string   `json:"worker,omitempty"` // the process of the app that serves single exports
	PID      int      `json:"pid,omitempty"`
	Comm     string   `json:"comm,omitempty"`
	Exe      string   `json:"exe,omitempty"`
	Blockers []string `json:"blockers,omitempty"`
	Object   string   `json:"object,omitempty"`
	Syscall  string   `json:"syscall,omitempty"` // its name
	Errno    string   `json:"errno,omitempty"`
	// Calls of the process were in flight when the record came: of one call it
	// is the record, of several nobody knows.
	Calls      int    `json:"calls"`
	Capability string `json:"capability,omitempty"` // the manifest's line that would allow it
	Because    string `json:"because,omitempty"`    // why there is none
	Suppressed uint64 `json:"suppressed,omitempty"` // records left out before this one
	Lost       uint64 `json:"lost,omitempty"`
}

// DenialRecord is what the kernel recorded of one denial, or says how many
// records are missing. App is empty for a domain of no app that was started.
// Text was chosen by processes of the sandbox.
type DenialRecord struct {
	App      string   `json:"app,omitempty"`
	Serial   uint64   `json:"serial,omitempty"`
	UnixNano int64    `json:"unix_nano,omitempty"` // the guest's clock, in milliseconds
	Canary   bool     `json:"canary,omitempty"`    // of the enforcer, before it became the app
	Seccomp  bool     `json:"seccomp,omitempty"`   // by the system call filter, not by Landlock
	Domain   string   `json:"domain,omitempty"`    // of Landlock, hex
	Blockers []string `json:"blockers,omitempty"`  // rights that were missing: "fs.make_reg"
	Path     string   `json:"path,omitempty"`      // as the app sees it; for a create, the folder
	Dev      string   `json:"dev,omitempty"`
	Ino      uint64   `json:"ino,omitempty"`
	Object   string   `json:"object,omitempty"` // what is no file: "127.0.0.1:80"
	PID      int      `json:"pid,omitempty"`    // the guest's number of the process, not of the thread
	Comm     string   `json:"comm,omitempty"`
	Exe      string   `json:"exe,omitempty"`
	Arch     string   `json:"arch,omitempty"`    // of the system call: "x86_64", "aarch64"
	Syscall  int      `json:"syscall,omitempty"` // its number
	Exit     int64    `json:"exit,omitempty"`    // what it returned: -13

	// Suppressed counts records of this app left out before this one: a flood.
	Suppressed uint64 `json:"suppressed,omitempty"`
	// Ended says that Domain is gone after Denials denials. What was neither
	// sent nor suppressed is Lost.
	Ended   bool   `json:"ended,omitempty"`
	Denials uint64 `json:"denials,omitempty"`
	// Lost without Ended is the kernel's own count of records of any kind that
	// it lost, or of one that could not be read.
	Lost uint64 `json:"lost,omitempty"`
	// Sync answers Control.Sync: every record from before was sent.
	Sync int64 `json:"sync,omitempty"`
}

// Package audit owns the kernel's records of denials: it registers as the
// kernel's audit daemon, parses the records' text, and joins those that belong
// to one system call into an Event.
package audit

import "time"

// Types of records, as in the kernel's linux/audit.h.
const (
	TypeStatus    = 1000 // the answer to a question for the status
	TypeMark      = 1121 // AUDIT_TRUSTED_APP: our own marks
	TypeSyscall   = 1300
	TypeEnd       = 1320 // the last record of a system call
	TypeSeccomp   = 1326
	TypeAccess    = 1423 // AUDIT_LANDLOCK_ACCESS
	TypeDomain    = 1424 // AUDIT_LANDLOCK_DOMAIN
	typeSet       = 1001
	typeAddRule   = 1011
	typePath      = 1302
	typeCWD       = 1307
	typeProctitle = 1327
	maxText       = 8970 // the kernel's MAX_AUDIT_MESSAGE_LENGTH, in bytes
	maxFields     = 64   // of one record
	maxAccesses   = 16   // of one system call
	maxUnfinished = 256  // system calls whose last record has not come
)

// Event is what the kernel recorded of one system call, or one thing by itself.
type Event struct {
	Serial   uint64
	Time     time.Time
	Accesses []Access // what Landlock denied
	Domain   *Domain
	Process  *Process // who made the system call; nil if that record is missing
	Seccomp  bool     // the system call filter refused it; Process says which
	Mark     uint64   // number of a mark that came back
	Status   *Status
}

// Access is one denial by a Landlock domain. Names are as the process saw them.
type Access struct {
	Domain   uint64
	Blockers []string // missing rights: "fs.make_reg", "net.connect_tcp", …
	Path     string   // for a create, the folder
	Dev      string
	Ino      uint64
	Object   string // what is no file: "127.0.0.1:80", "pid 7"
}

// Domain is the first or the last record of a Landlock domain.
type Domain struct {
	ID      uint64
	Ended   bool
	Denials uint64 // Ended: how many there were
	PID     int    // not Ended: who restricted itself
}

// Process is who made a system call. Numbers are those of the first pid namespace.
type Process struct {
	PID, Parent int // Parent is 0 where the kernel does not record it
	Comm, Exe   string
	Arch        string // of the system call: "x86_64", "aarch64", else the kernel's number
	Syscall     int
	Exit        int64
}

// Status is what the kernel counts.
type Status struct{ Lost uint32 }

package policy

// Use says what every app may do with a place of its baseline.
type Use string

// The uses. The enforcer has the Landlock rights of each.
const (
	UseCode     Use = "code"      // read and execute
	UseRead     Use = "read"      // read
	UseWrite    Use = "write"     // read and change
	UseDevice   Use = "device"    // read and write a device that harms nobody
	UseTerminal Use = "terminals" // read, write and control a pseudo terminal
)

// Place is something that an app has without any capability.
type Place struct {
	Path string
	Use  Use
	What string // a phrase
}

// Baseline lists what every process of an app has besides what its policy
// names; what lies below a place is part of it. The enforcer grants these and
// no other, and what is said about apps comes from here.
func Baseline(terminal bool) []Place {
	list := []Place{
		{"/app", UseCode, "its own code, which is read-only"},
		{"/scratch", UseWrite, "its private scratch folder"},
		{"/dev/shm", UseWrite, "its private shared memory"},
		{"/proc", UseRead, "its own processes, read-only"},
		{"/etc", UseRead, "the baseline of /etc, read-only"},
		{"/dev/null", UseDevice, "a harmless device"},
		{"/dev/zero", UseDevice, "a harmless device"},
		{"/dev/full", UseDevice, "a harmless device"},
		{"/dev/random", UseDevice, "a harmless device"},
		{"/dev/urandom", UseDevice, "a harmless device"},
	}
	if terminal {
		list = append(list,
			Place{"/dev/pts", UseTerminal, "its own pseudo terminals"},
			Place{"/dev/ptmx", UseTerminal, "its own pseudo terminals"},
			Place{"/dev/tty", UseDevice, "its controlling terminal"},
		)
	}
	return list
}

// BaselineAt returns the place of the baseline that holds a clean absolute path.
func BaselineAt(name string, terminal bool) (Place, bool) {
	for _, p := range Baseline(terminal) {
		if Below(name, p.Path) {
			return p, true
		}
	}
	return Place{}, false
}

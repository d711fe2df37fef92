package policy

import "strings"

// FS is a set of Landlock file system rights. The bits are the kernel's.
type FS uint64

// The file system rights, in the kernel's order.
const (
	FSExecute FS = 1 << iota
	FSWriteFile
	FSReadFile
	FSReadDir
	FSRemoveDir
	FSRemoveFile
	FSMakeChar
	FSMakeDir
	FSMakeReg
	FSMakeSock
	FSMakeFifo
	FSMakeBlock
	FSMakeSym
	FSRefer
	FSTruncate
	FSIoctlDev
	FSResolveUnix
)

// Groups of rights. No scope carries FSExecute, FSMakeChar, FSMakeBlock,
// FSIoctlDev or FSResolveUnix: programs come from /app and the runtime, and a
// device or a socket made by somebody else is never part of a granted folder.
const (
	FSRead  = FSReadFile | FSReadDir
	FSWrite = FSRead | FSWriteFile | FSTruncate | FSRemoveDir | FSRemoveFile |
		FSMakeDir | FSMakeReg | FSMakeSock | FSMakeFifo | FSMakeSym | FSRefer
	// FSOnFile are the rights that a rule on a single file may carry; the
	// kernel refuses the others there.
	FSOnFile = FSExecute | FSWriteFile | FSReadFile | FSTruncate | FSIoctlDev | FSResolveUnix
)

// Net is a set of Landlock network rights. The bits are the kernel's.
type Net uint64

// The network rights, in the kernel's order.
const (
	NetBindTCP Net = 1 << iota
	NetConnectTCP
	NetBindUDP
	NetConnectSendUDP
)

// Scope is a set of Landlock scopes. The bits are the kernel's.
type Scope uint64

// The scopes, in the kernel's order.
const (
	ScopeAbstractUnix Scope = 1 << iota
	ScopeSignal
)

// ABI is what one version of Landlock handles.
type ABI struct {
	Version int
	FS      FS
	Net     Net
	Scope   Scope
	Log     bool // records after execve can be asked for
	TSync   bool // one call restricts every thread
}

// OldestABI is the oldest Landlock that Berth runs an app on, NewestABI the
// newest that History describes.
const (
	OldestABI = 4
	NewestABI = 11
)

// History returns what Landlock version abi handles. A kernel newer than
// NewestABI handles at least what NewestABI does.
func History(abi int) ABI {
	a := ABI{Version: min(abi, NewestABI)}
	if abi >= 1 {
		a.FS = FSRefer - 1
	}
	for _, step := range [...]struct {
		since int
		fs    FS
		net   Net
		scope Scope
	}{
		{since: 2, fs: FSRefer},
		{since: 3, fs: FSTruncate},
		{since: 4, net: NetBindTCP | NetConnectTCP},
		{since: 5, fs: FSIoctlDev},
		{since: 6, scope: ScopeAbstractUnix | ScopeSignal},
		{since: 9, fs: FSResolveUnix},
		{since: 10, net: NetBindUDP | NetConnectSendUDP},
	} {
		if abi >= step.since {
			a.FS |= step.fs
			a.Net |= step.net
			a.Scope |= step.scope
		}
	}
	a.Log = abi >= 7
	a.TSync = abi >= 8
	return a
}

func (s FS) String() string {
	return names(uint64(s), "execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file",
		"make_char", "make_dir", "make_reg", "make_sock", "make_fifo", "make_block", "make_sym",
		"refer", "truncate", "ioctl_dev", "resolve_unix")
}

func (s Net) String() string {
	return names(uint64(s), "bind_tcp", "connect_tcp", "bind_udp", "connect_send_udp")
}

func (s Scope) String() string {
	return names(uint64(s), "abstract_unix_socket", "signal")
}

// names lists the set bits by name, as kernel records and go-landlock do.
func names(set uint64, bits ...string) string {
	var in []string
	for i, name := range bits {
		if set&(1<<i) != 0 {
			in = append(in, name)
		}
	}
	if len(in) == 0 {
		return "none"
	}
	return strings.Join(in, ",")
}

// Package wire owns the bytes of 9P2000.L messages: sizes, numbers and the
// cursors that read and write their fields. It does no I/O and knows no files.
package wire

import "encoding/binary"

// HeaderSize is size[4] type[1] tag[2].
const HeaderSize = 7

// Limits of one message.
const (
	// IOHeader is what surrounds the payload of a read or write (P9_IOHDRSZ).
	IOHeader = 24
	// MaxPayload is the most bytes one read or write carries.
	MaxPayload = 512 << 10
	// MaxSize is the most a message may measure.
	MaxSize = MaxPayload + IOHeader
	// MinSize is the least a session may agree on, as in the Linux client.
	MinSize = 4096
	// MaxWalk is the most names in one walk (P9_MAXWELEM).
	MaxWalk = 16
)

// Version is the only protocol spoken.
const Version = "9P2000.L"

// Reserved values.
const (
	NoTag = 0xFFFF
	NoFID = 0xFFFFFFFF
	NoID  = 0xFFFFFFFF // a uid or gid that is not given
)

// Type is a message's number. A reply has the number of its request plus one.
type Type uint8

// Requests, and the one reply that is not its request plus one.
const (
	Rlerror      Type = 7
	Tstatfs      Type = 8
	Tlopen       Type = 12
	Tlcreate     Type = 14
	Tsymlink     Type = 16
	Tmknod       Type = 18
	Trename      Type = 20
	Treadlink    Type = 22
	Tgetattr     Type = 24
	Tsetattr     Type = 26
	Txattrwalk   Type = 30
	Txattrcreate Type = 32
	Treaddir     Type = 40
	Tfsync       Type = 50
	Tlock        Type = 52
	Tgetlock     Type = 54
	Tlink        Type = 70
	Tmkdir       Type = 72
	Trenameat    Type = 74
	Tunlinkat    Type = 76
	Tversion     Type = 100
	Tauth        Type = 102
	Tattach      Type = 104
	Tflush       Type = 108
	Twalk        Type = 110
	Tread        Type = 116
	Twrite       Type = 118
	Tclunk       Type = 120
	Tremove      Type = 122
)

// Open flags (P9_DOTL_*): the numbers are x86's, on every architecture.
const (
	OpenAccess = 0o3
	OpenRead   = 0o0
	OpenWrite  = 0o1
	OpenBoth   = 0o2
	OpenExcl   = 0o200
	OpenTrunc  = 0o1000
	OpenDsync  = 0o10000
	OpenDir    = 0o200000
	OpenSync   = 0o4000000
)

// AtRemoveDir is the only flag of unlinkat.
const AtRemoveDir = 0x200

// Bits of setattr's valid field.
const (
	SetMode     = 1 << 0
	SetUID      = 1 << 1
	SetGID      = 1 << 2
	SetSize     = 1 << 3
	SetAtime    = 1 << 4
	SetMtime    = 1 << 5
	SetCtime    = 1 << 6
	SetAtimeVal = 1 << 7
	SetMtimeVal = 1 << 8
)

// Bits of getattr's result mask.
const (
	AttrBasic = 0x7ff
	AttrBtime = 0x800
	AttrGen   = 0x1000
)

// Lock types, flags and answers.
const (
	LockRead   = 0
	LockWrite  = 1
	LockUnlock = 2

	LockSuccess = 0
	LockBlocked = 1
	LockError   = 2
)

// QID types.
const (
	QTFile    = 0x00
	QTSymlink = 0x02
	QTDir     = 0x80
)

// QID names one file of the server.
type QID struct {
	Type    uint8
	Version uint32
	Path    uint64
}

// Header takes apart the first HeaderSize bytes of a message.
func Header(b []byte) (size uint32, t Type, tag uint16) {
	return binary.LittleEndian.Uint32(b), Type(b[4]), binary.LittleEndian.Uint16(b[5:])
}

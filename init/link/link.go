// Package link owns the one byte stream between host and guest: its handshake,
// the multiplexed session on it, and the messages of its streams (spec.md).
package link

// Version is the link version that this build speaks.
const Version = 1

// Limits that are checked before memory is taken, in bytes or counts.
const (
	MaxHeader  = 4 << 10 // a stream header
	MaxControl = 2 << 20 // a control message
	MaxLogLine = 16 << 10
	MaxDenial  = 64 << 10 // a denial record: two paths, in which a byte may take six
	MaxStreams = 1024     // open streams of one session
)

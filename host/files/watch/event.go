//go:build linux

package watch

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// event is one inotify_event.
type event struct {
	watch int
	mask  uint32
	name  string
}

// parse reads what the kernel wrote.
func parse(b []byte) (events []event) {
	for len(b) >= unix.SizeofInotifyEvent {
		length := int(binary.NativeEndian.Uint32(b[12:]))
		if length > len(b)-unix.SizeofInotifyEvent {
			return events
		}
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:][:length], []byte{0})
		events = append(events, event{
			watch: int(int32(binary.NativeEndian.Uint32(b))),
			mask:  binary.NativeEndian.Uint32(b[4:]),
			name:  string(name),
		})
		b = b[unix.SizeofInotifyEvent+length:]
	}
	return events
}

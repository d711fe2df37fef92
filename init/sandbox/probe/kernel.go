package probe

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel are attacks on the kernel's surface with an effect. calls are those
// where it would be harmful.
func kernel() []Probe {
	only := []Layer{{seccomp}}
	return []Probe{
		{ID: "KS-05", What: "switch address randomisation off", Layers: only, Want: notAllowed, Run: func(World, string) error {
			return persona(0x0040000)
		}},
		{ID: "KS-13", What: "any device but the harmless ones", Want: []syscall.Errno{unix.ENOENT, unix.EACCES}, Run: func(World, string) error {
			var st unix.Stat_t
			return unix.Stat("/dev/tty", &st)
		}},
	}
}

// ThirtyTwoBit calls getpid through int 0x80, the entry of 32-bit programs,
// where numbers mean other calls. The code is made at run time.
func ThirtyTwoBit() (int, error) {
	code := []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3} // mov $20, %eax; int $0x80; ret
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, err
	}
	copy(page, code)
	entry := unsafe.Pointer(&page[0])
	pointer := unsafe.Pointer(&entry)
	f := *(*func() int)(unsafe.Pointer(&pointer))
	return int(int32(f())), nil
}

// X32 calls getpid by its x32 number.
func X32() syscall.Errno { return raw(0x40000000 | unix.SYS_GETPID) }

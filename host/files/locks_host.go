//go:build linux

package files

import (
	"math"
	"slices"

	"github.com/berthos/berth/host/files/beneath"
	"golang.org/x/sys/unix"
)

// span is the form of a lock's range that the host takes.
func span(start, end int64) beneath.Range {
	if end == math.MaxInt64 {
		return beneath.Range{Start: start}
	}
	return beneath.Range{Start: start, Len: end - start}
}

func kindOf(write bool) int16 {
	if write {
		return unix.F_WRLCK
	}
	return unix.F_RDLCK
}

// takeOnHost sets the lock against programs of the host. The guest's flock(2)
// arrives as a lock of the whole file, so such a lock is set as both.
func (fl *fileLocks) takeOnHost(want lock) (blocked bool, err error) {
	if fl.file == nil {
		return false, nil
	}
	if want.whole() {
		how := unix.LOCK_SH
		if want.write {
			how = unix.LOCK_EX
		}
		fl.flock = how // a change that is refused may have lost what was held
		blocked, err = busy(fl.file.Flock(how))
	}
	if !blocked && err == nil && (fl.writable || !want.write) {
		blocked, err = busy(fl.file.Lock(kindOf(want.write), span(want.start, want.end)))
	}
	if blocked || err != nil {
		fl.settle(want)
	}
	return blocked, err
}

// busy tells "somebody has it" from an error.
func busy(err error) (bool, error) {
	if err == unix.EAGAIN || err == unix.EACCES {
		return true, nil
	}
	return false, err
}

// settle brings the host's locks within at in line with what is held. It only
// ever gives up or keeps what this descriptor has, so it can not be refused.
func (fl *fileLocks) settle(at lock) {
	if fl.file == nil {
		return
	}
	cuts := []int64{at.start, at.end}
	for _, l := range fl.held {
		for _, c := range []int64{l.start, l.end} {
			if c > at.start && c < at.end {
				cuts = append(cuts, c)
			}
		}
	}
	slices.Sort(cuts)
	for i := 1; i < len(cuts); i++ {
		if cuts[i-1] < cuts[i] {
			fl.file.Lock(fl.wanted(cuts[i-1]), span(cuts[i-1], cuts[i]))
		}
	}
	fl.settleFlock()
}

// wanted is the lock that the byte at pos needs.
func (fl *fileLocks) wanted(pos int64) int16 {
	kind := int16(unix.F_UNLCK)
	for _, l := range fl.held {
		if l.start <= pos && pos < l.end {
			if l.write {
				return unix.F_WRLCK
			}
			kind = unix.F_RDLCK
		}
	}
	return kind
}

func (fl *fileLocks) settleFlock() {
	want := unix.LOCK_UN
	for _, l := range fl.held {
		if l.whole() && l.write {
			want = unix.LOCK_EX
		} else if l.whole() && want == unix.LOCK_UN {
			want = unix.LOCK_SH
		}
	}
	if fl.flock != 0 {
		fl.file.Flock(want)
		fl.flock = want
	}
}

// testOnHost asks for a lock of a program of the host.
func (fl *fileLocks) testOnHost(want lock) (lock, bool, error) {
	if fl.file == nil || want.write && !fl.writable {
		return lock{}, false, nil
	}
	kind, at, err := fl.file.TestLock(kindOf(want.write), span(want.start, want.end))
	if err != nil || kind == unix.F_UNLCK {
		return lock{}, false, err
	}
	l := lock{write: kind == unix.F_WRLCK, start: at.Start, end: math.MaxInt64}
	if at.Len > 0 {
		l.end = at.Start + at.Len
	}
	return l, true, nil
}

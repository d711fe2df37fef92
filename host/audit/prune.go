package audit

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Prune removes whole segments whose records are all older than a time, and says
// so in the trail first. The hashes stay, so that heads and proofs keep their
// meaning. It returns how many records were removed.
func (l *Log) Prune(before time.Time) (removed int64, err error) {
	limit := before.UTC().Format(timeLayout)
	err = l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		all, err := l.d.segments()
		if err != nil {
			return err
		}
		keep := 0
		for ; keep+1 < len(all); keep++ {
			newest, err := l.newestIn(all[keep])
			if err != nil {
				return err
			}
			if newest >= limit {
				break
			}
		}
		if keep == 0 {
			return nil
		}
		if err := l.add(Record{Kind: KindPrune, Count: all[keep], Reason: "records before " + limit}); err != nil {
			return err
		}
		if err := l.sync(); err != nil {
			return err
		}
		for _, first := range all[:keep] {
			if err := unix.Unlinkat(int(l.d.f.Fd()), segmentName(first), 0); err != nil {
				return fmt.Errorf("cannot remove %s: %w", l.d.file(segmentName(first)), err)
			}
		}
		removed = all[keep] - all[0]
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("cannot prune the audit trail: %w", err)
	}
	return removed, nil
}

// newestIn is the latest time in a segment.
func (l *Log) newestIn(first int64) (newest string, err error) {
	f, err := l.d.open(segmentName(first), unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for l := newLines(f); ; {
		line, err := l.next()
		if err == io.EOF {
			return newest, nil
		}
		var r Record
		if err == nil {
			r, err = decode(line)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.Name(), err)
		}
		newest = max(newest, r.Time)
	}
}

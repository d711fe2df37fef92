package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// every is how often a follower looks for new records.
const every = 200 * time.Millisecond

// Each calls f with every record and its line from a number on, without checking
// more than that it is one; with follow it then waits for new ones until ctx
// ends. The line is valid during the call only.
func (t *Trail) Each(ctx context.Context, from int64, follow bool, f func(Record, []byte) error) error {
	all, err := t.d.segments()
	if err != nil || len(all) == 0 {
		return err
	}
	at := position{segment: all[0], n: all[0]}
	for _, first := range all {
		if first <= from {
			at = position{segment: first, n: first}
		}
	}
	for {
		next, err := t.some(ctx, at, from, f)
		if err != nil {
			return err
		}
		if next == at {
			if !follow {
				return nil
			}
			select {
			case <-time.After(every):
			case <-ctx.Done():
				return nil
			}
		}
		at = next
	}
}

// some reads what there is of a segment, and says where to go on.
func (t *Trail) some(ctx context.Context, at position, from int64, f func(Record, []byte) error) (position, error) {
	file, err := t.d.open(segmentName(at.segment), unix.O_RDONLY)
	if err != nil {
		return at, err
	}
	defer file.Close()
	if _, err := file.Seek(at.offset, io.SeekStart); err != nil {
		return at, err
	}
	for l := newLines(file); ctx.Err() == nil; {
		line, err := l.next()
		if err == io.EOF || errors.Is(err, errTorn) {
			break
		}
		var r Record
		if err == nil {
			r, err = decode(line)
		}
		if err != nil {
			return at, fmt.Errorf("record %d in %s: %w", at.n, file.Name(), err)
		}
		if r.Seq >= from {
			if err := f(r, line); err != nil {
				return at, err
			}
		}
		at = at.after(line)
	}
	if _, err := t.d.size(segmentName(at.n)); err == nil && at.offset > 0 {
		return position{segment: at.n, n: at.n}, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return at, err
	}
	return at, nil
}

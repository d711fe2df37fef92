package audit

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

var (
	errTorn = errors.New("the last line has no end")
	errLong = fmt.Errorf("a line is longer than %d bytes", MaxLine)
)

// lines reads whole lines of at most MaxLine bytes.
type lines struct {
	r *bufio.Reader
}

func newLines(r io.Reader) lines { return lines{bufio.NewReaderSize(r, MaxLine)} }

// next returns a line without its newline, valid until the next call; io.EOF at
// the end, errTorn if the file ends within a line. After errLong the rest of the
// line has been passed over.
func (l lines) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		return nil, errLong
	case err == io.EOF && len(line) > 0:
		return nil, errTorn
	}
	return nil, err
}

// follows reads a record that must be the next one after a position.
func (p position) follows(line []byte) (Record, error) {
	r, err := decode(line)
	if err == nil {
		err = r.check()
	}
	switch {
	case err != nil:
		return Record{}, err
	case r.Seq != p.n:
		return Record{}, fmt.Errorf("its number is %d, not %d", r.Seq, p.n)
	case r.Prev != p.last:
		return Record{}, errors.New("the line before it is another than when it was written")
	}
	return r, nil
}

// after is the position behind a line.
func (p position) after(line []byte) position {
	return position{segment: p.segment, offset: p.offset + int64(len(line)) + 1, n: p.n + 1, last: sha256.Sum256(line)}
}

// forward reads records from a position on through all later segments, as long
// as each follows the one before, and says where the last one ends.
func (d *dir) forward(from position, each func(Record, []byte) error) (position, error) {
	at := from
	for {
		f, err := d.open(segmentName(at.segment), unix.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) && at.offset == 0 {
			return at, nil // nothing was written to it yet
		}
		if err != nil {
			return at, err
		}
		at, err = forwardIn(f, at, each)
		f.Close()
		if err != nil {
			return at, err
		}
		if at.n == at.segment { // an empty segment is the last
			return at, nil
		}
		if _, err := d.size(segmentName(at.n)); errors.Is(err, os.ErrNotExist) {
			return at, nil
		}
		at.segment, at.offset = at.n, 0
	}
}

// forwardIn reads one segment.
func forwardIn(f *os.File, at position, each func(Record, []byte) error) (position, error) {
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	if info.Size() < at.offset {
		return at, fmt.Errorf("%s ends at byte %d, before byte %d where its newest signed record ended", f.Name(), info.Size(), at.offset)
	}
	if _, err := f.Seek(at.offset, io.SeekStart); err != nil {
		return at, err
	}
	return follow(f, at, each)
}

// follow reads records up to the end.
func follow(r io.Reader, at position, each func(Record, []byte) error) (position, error) {
	for l := newLines(r); ; {
		line, err := l.next()
		if err == io.EOF {
			return at, nil
		}
		var r Record
		if err == nil {
			r, err = at.follows(line)
		}
		if err != nil {
			return at, &brokenError{at, err}
		}
		if err := each(r, line); err != nil {
			return at, err
		}
		at = at.after(line)
	}
}

// brokenError says that what is at a position does not follow what is before.
type brokenError struct {
	at    position
	cause error
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("record %d in %s: %v", e.at.n, segmentName(e.at.segment), e.cause)
}

func (e *brokenError) Unwrap() error { return e.cause }

// size is that of a file in bytes.
func (d *dir) size(name string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, &os.PathError{Op: "stat", Path: d.file(name), Err: err}
	}
	return st.Size, nil
}

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
)

// segmentSize is how long a segment gets, in bytes.
const segmentSize = 16 << 20

// Log is the trail, for writing. Several processes may have it open: each waits
// for the others, one record at a time. It is safe for concurrent use.
type Log struct {
	d       *dir
	key     note.Signer
	lock    *os.File
	limit   int64 // segmentSize, but in tests
	now     func() time.Time
	hashes  *os.File
	mu      sync.Mutex // guards what follows
	at      position
	segment *os.File // of at; nil before the first load
	signed  int64    // records in the newest checkpoint
}

// Open opens the trail in a folder, which it makes if it is not there. What a
// killed writer left half done is repaired at the first record.
func Open(folder string) (*Log, error) {
	d, err := openDir(folder, true)
	if err != nil {
		return nil, err
	}
	l := &Log{d: d, limit: segmentSize, now: time.Now}
	if l.lock, err = d.open(lockFile, unix.O_RDWR|unix.O_CREAT); err == nil {
		l.hashes, err = d.open(hashFile, unix.O_RDWR|unix.O_CREAT)
	}
	if err == nil {
		err = l.locked(func() (err error) {
			if l.key, err = signer(d); err != nil {
				return err
			}
			return l.load()
		})
	}
	if err != nil {
		l.release()
		return nil, fmt.Errorf("cannot keep the audit trail: %w", err)
	}
	return l, nil
}

func (l *Log) release() {
	for _, f := range []*os.File{l.lock, l.hashes, l.segment} {
		if f != nil {
			f.Close()
		}
	}
	l.d.close()
}

// Close signs what is there and ends the use of the trail.
func (l *Log) Close() error {
	err := l.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release()
	return err
}

// locked calls f while no other process writes.
func (l *Log) locked(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("cannot lock %s: %w", l.lock.Name(), err)
		}
	}
	defer func() { _ = unix.Flock(int(l.lock.Fd()), unix.LOCK_UN) }()
	return f()
}

// Append writes a record; number, time and chain are set here. When it returns
// the record has been handed to the kernel, and after Sync to the disk. After an
// error nothing of it is there.
func (l *Log) Append(r Record) (seq int64, err error) {
	err = l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		seq = l.at.n
		return l.add(r)
	})
	if err != nil {
		return 0, fmt.Errorf("cannot write to the audit trail: %w", err)
	}
	return seq, nil
}

// add writes a record at the end.
func (l *Log) add(r Record) error {
	r.Seq, r.Prev, r.Time = l.at.n, l.at.last, l.now().UTC().Format(timeLayout)
	line, err := fitted(r)
	if err == nil {
		err = r.check()
	}
	if err == nil && l.at.offset > 0 && l.at.offset+int64(len(line)) >= l.limit {
		err = l.rotate()
	}
	if err != nil {
		return err
	}
	_, err = l.segment.WriteAt(append(line, '\n'), l.at.offset)
	if err == nil {
		err = addHash(l.hashes, l.at.n, line)
	}
	if err != nil {
		// Half a record is as none: who wants the next one cuts it off too.
		return errors.Join(err, l.segment.Truncate(l.at.offset), l.hashes.Truncate(hashesSize(l.at.n)))
	}
	l.at = l.at.after(line)
	return nil
}

// rotate begins a new segment.
func (l *Log) rotate() error {
	if err := l.sync(); err != nil {
		return err
	}
	return l.use(position{segment: l.at.n, n: l.at.n, last: l.at.last})
}

// use opens the segment of a position, where the next record goes.
func (l *Log) use(at position) error {
	f, err := l.d.open(segmentName(at.segment), unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return err
	}
	if l.segment != nil {
		l.segment.Close()
	}
	l.segment, l.at = f, at
	return nil
}

// catchUp reads what other processes wrote, if they did.
func (l *Log) catchUp() error {
	var segment, hashes unix.Stat_t
	if err := errors.Join(unix.Fstat(int(l.segment.Fd()), &segment), unix.Fstat(int(l.hashes.Fd()), &hashes)); err != nil {
		return err
	}
	if segment.Nlink == 0 || hashes.Nlink == 0 {
		return hint.Errorf("start the sandbox again", "the trail in %s was removed while it was in use", l.d.path)
	}
	_, err := l.d.size(segmentName(l.at.n)) // begun by another
	rotated := err == nil && l.at.offset > 0
	if segment.Size == l.at.offset && hashes.Size == hashesSize(l.at.n) && !rotated {
		return nil
	}
	return l.goOn(l.at)
}

// load finds the end of the trail from the newest checkpoint on.
func (l *Log) load() error {
	from, err := l.newest()
	if err != nil {
		return err
	}
	return l.goOn(from)
}

// newest is the position of the newest checkpoint, whose tree must be there.
func (l *Log) newest() (position, error) {
	raw, err := l.d.readFile(checkpointFile, maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, nil
	}
	if err != nil {
		return position{}, err
	}
	public, err := l.d.readFile(verifierFile, 1<<10)
	if err != nil {
		return position{}, err
	}
	v, err := ParseVerifier(public)
	if err != nil {
		return position{}, err
	}
	c, err := ParseCheckpoint(raw, v)
	if err != nil {
		return position{}, hint.Errorf(advice, "%s: %w", l.d.file(checkpointFile), err)
	}
	if c.Tree.N > 0 {
		root, err := tlog.TreeHash(c.Tree.N, stored(l.hashes))
		if err != nil || root != c.Tree.Hash {
			return position{}, hint.Errorf(advice, "%s is not that of the signed head", l.d.file(hashFile))
		}
	}
	l.signed = c.Tree.N
	return c.at, nil
}

// advice is for a trail from which something that was signed is missing.
const advice = "look at what \"berth audit verify\" says; move the folder away to begin a new trail"

// goOn reads the records behind a position, cuts off what is none, completes the
// hashes, and says in a record of its own if anything was cut off.
func (l *Log) goOn(from position) error {
	have, err := l.d.size(hashFile)
	if err != nil {
		return err
	}
	complete := func(end position) bool { return have == hashesSize(end.n) }
	end, err := l.d.forward(from, func(Record, []byte) error { return nil })
	broken := (*brokenError)(nil)
	if err != nil && !errors.As(err, &broken) {
		return hint.Errorf(advice, "%w", err)
	}
	if err := l.use(end); err != nil {
		return err
	}
	cut, err := l.cutAfter(end)
	if err != nil {
		return err
	}
	if !complete(end) {
		if err := l.rehash(from, end); err != nil {
			return err
		}
	}
	if broken == nil {
		return nil
	}
	return l.add(Record{Kind: KindLoss, Count: 1, Reason: fmt.Sprintf("the trail ended in %d bytes that are no record (%v), as after a crash; they were cut off", cut, broken.cause)})
}

// cutAfter removes what is behind a position, which no checkpoint has signed.
func (l *Log) cutAfter(end position) (cut int64, err error) {
	size, err := l.d.size(segmentName(end.segment))
	if err != nil {
		return 0, err
	}
	all, err := l.d.segments()
	if err != nil {
		return 0, err
	}
	for _, first := range all {
		if first > end.segment {
			n, _ := l.d.size(segmentName(first))
			cut += n
			if err := unix.Unlinkat(int(l.d.f.Fd()), segmentName(first), 0); err != nil {
				return 0, fmt.Errorf("cannot remove %s: %w", l.d.file(segmentName(first)), err)
			}
		}
	}
	return cut + size - end.offset, l.segment.Truncate(end.offset)
}

// rehash makes the hashes of the records between two positions anew.
func (l *Log) rehash(from, end position) error {
	if size, err := l.d.size(hashFile); err != nil || size < hashesSize(from.n) {
		return errors.Join(err, fmt.Errorf("%s is shorter than the records that were signed", l.d.file(hashFile)))
	}
	if err := l.hashes.Truncate(hashesSize(from.n)); err != nil {
		return err
	}
	_, err := l.d.forward(from, func(r Record, line []byte) error { return addHash(l.hashes, r.Seq, line) })
	return err
}

// Sync puts everything on the disk and signs a new checkpoint, if there is
// anything new.
func (l *Log) Sync() error {
	err := l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		return l.sync()
	})
	if err != nil {
		return fmt.Errorf("cannot secure the audit trail: %w", err)
	}
	return nil
}

func (l *Log) sync() error {
	if l.signed == l.at.n {
		return nil
	}
	if err := errors.Join(l.segment.Sync(), l.hashes.Sync(), l.d.f.Sync()); err != nil {
		return err
	}
	root, err := tlog.TreeHash(l.at.n, stored(l.hashes))
	if err != nil {
		return err
	}
	c, err := sign(tlog.Tree{N: l.at.n, Hash: root}, l.at, l.key)
	if err != nil {
		return err
	}
	if err := l.d.replaceFile(checkpointFile, c.Text, 0o644); err != nil {
		return err
	}
	l.signed = l.at.n
	return nil
}

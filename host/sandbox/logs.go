package sandbox

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/berthos/berth/init/link"
)

// logBuffer is how many records a follower may lag behind, and how many of the
// past a new follower gets.
const logBuffer = 512

// logs hands the guest's log records to whoever follows them.
type logs struct {
	mu        sync.Mutex // guards what follows
	recent    []link.LogRecord
	followers map[*follower]struct{}
	closed    bool
}

type follower struct {
	ch      chan link.LogRecord
	dropped int64
}

func newLogs() *logs { return &logs{followers: map[*follower]struct{}{}} }

// Logs delivers the last records and those from now on until ctx or the sandbox
// ends. A follower that is too slow loses records; the next one that it gets
// says how many.
func (s *Sandbox) Logs(ctx context.Context) <-chan link.LogRecord {
	l := s.logs
	f := &follower{ch: make(chan link.LogRecord, 2*logBuffer)}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recent {
		f.ch <- r
	}
	if l.closed || ctx.Err() != nil {
		close(f.ch)
		return f.ch
	}
	l.followers[f] = struct{}{}
	context.AfterFunc(ctx, func() { l.leave(f) })
	return f.ch
}

func (l *logs) leave(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.followers[f]; there {
		delete(l.followers, f)
		close(f.ch)
	}
}

func (l *logs) add(r link.LogRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent = append(l.recent, r)
	if len(l.recent) > logBuffer {
		l.recent = l.recent[1:]
	}
	for f := range l.followers {
		sent := r
		sent.Dropped += f.dropped
		select {
		case f.ch <- sent:
			f.dropped = 0
		default:
			f.dropped += r.Dropped + 1
		}
	}
}

func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for f := range l.followers {
		close(f.ch)
	}
	clear(l.followers)
}

// readLogs takes records from the guest's log stream until it ends.
func (s *Sandbox) readLogs(stream *link.Stream) {
	defer stream.Close()
	for {
		r, err := stream.ReceiveLog()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.log.Debug("log stream ended", "error", err)
			}
			return
		}
		r.Denied = nil // a guest tells of denials elsewhere
		s.logs.add(r)
	}
}

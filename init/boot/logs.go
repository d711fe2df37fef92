package boot

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/berthos/berth/init/link"
)

// Limits of the log. What an app prints is kept in its own ring until the host
// has read it; when the ring is full the oldest lines go, and are counted.
const (
	ringLines = 2000
	ringBytes = 512 << 10
	tailLines = 20 // of stderr, kept for the reason of a failure

	cutMarker = " […cut]"
)

// logs collects lines of all apps and hands them to one writer in turn, so
// that an app that floods its log delays nobody else's.
type logs struct {
	outbox[link.LogRecord]

	rings []*ring // mu guards these
	last  int     // ring that was looked at
}

// ring holds the lines of one app that wait to be sent.
type ring struct {
	app     string
	lines   []link.LogRecord
	bytes   int
	dropped int64
	sources int // writers that are open
}

func newLogs() *logs {
	l := &logs{}
	l.outbox = newOutbox(l.inTurn)
	return l
}

// ringOf returns the ring of an app, made at its first line. mu is held.
func (l *logs) ringOf(app string) *ring {
	for _, r := range l.rings {
		if r.app == app {
			return r
		}
	}
	r := &ring{app: app}
	l.rings = append(l.rings, r)
	return r
}

// add queues one line.
func (l *logs) add(app, stream, line string) {
	l.change(func() {
		r := l.ringOf(app)
		r.lines = append(r.lines, link.LogRecord{App: app, Stream: stream, Line: line})
		r.bytes += len(line)
		for len(r.lines) > ringLines || r.bytes > ringBytes {
			r.bytes -= len(r.lines[0].Line)
			r.dropped += r.lines[0].Dropped + 1
			r.lines = r.lines[1:]
		}
	})
}

// inTurn takes the next line, of another app than the last if there is one. mu
// is held.
func (l *logs) inTurn() (link.LogRecord, bool) {
	for range l.rings {
		l.last = (l.last + 1) % len(l.rings)
		r := l.rings[l.last]
		if len(r.lines) == 0 {
			continue
		}
		rec := r.lines[0]
		rec.Dropped += r.dropped
		r.lines, r.dropped = r.lines[1:], 0
		r.bytes -= len(rec.Line)
		if len(r.lines) == 0 {
			r.lines = nil // gives the array back
			if r.sources == 0 {
				l.rings = append(l.rings[:l.last], l.rings[l.last+1:]...)
			}
		}
		return rec, true
	}
	return link.LogRecord{}, false
}

// writer returns what turns bytes into lines of an app's log.
func (l *logs) writer(app, stream string) *lineWriter {
	l.mu.Lock()
	l.ringOf(app).sources++
	l.mu.Unlock()
	return &lineWriter{emit: func(line string) { l.add(app, stream, line) }, closed: func() {
		l.mu.Lock()
		l.ringOf(app).sources--
		l.mu.Unlock()
	}}
}

// lineWriter cuts what is written to it into lines of at most MaxLogLine
// bytes. Bytes that are no UTF-8 are replaced, everything else is kept.
type lineWriter struct {
	emit   func(line string)
	closed func()

	mu   sync.Mutex // guards what follows
	part []byte     // of the current line
	over bool       // the rest of the current line is skipped
	tail []string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		w.keep(line)
		if ended {
			w.flush()
		}
	}
	return len(p), nil
}

// keep adds to the current line what still fits.
func (w *lineWriter) keep(b []byte) {
	if w.over {
		return
	}
	if room := link.MaxLogLine - len(cutMarker) - len(w.part); len(b) > room {
		b, w.over = b[:room], true
	}
	w.part = append(w.part, b...)
}

func (w *lineWriter) flush() {
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(w.part, []byte("\r"))), "\uFFFD")
	if limit := link.MaxLogLine - len(cutMarker); w.over || len(text) > limit {
		text = strings.ToValidUTF8(text[:min(len(text), limit)], "") + cutMarker
	}
	w.part, w.over = w.part[:0], false
	w.tail = append(w.tail, text)
	if len(w.tail) > tailLines {
		w.tail = w.tail[1:]
	}
	w.emit(text)
}

// Close ends the last line, if it has no newline.
func (w *lineWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.part) > 0 {
		w.flush()
	}
	w.closed()
	return nil
}

// last returns the last lines that were written.
func (w *lineWriter) last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.tail...)
}

// drain copies r into w until its end and closes both.
func (w *lineWriter) drain(r io.ReadCloser) {
	_, _ = io.Copy(struct{ io.Writer }{w}, r)
	_ = r.Close()
	_ = w.Close()
}

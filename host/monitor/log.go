package monitor

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxLog is how long a log grows before it begins anew, in bytes; the one before
// is kept.
const maxLog = 4 << 20

// logFile is the log of a long-lived sandbox. Both files are open from the start:
// a monitor that is locked in opens none.
type logFile struct {
	mu          sync.Mutex // guards what follows
	now, before *os.File
}

// line writes one line. A disk that is full loses it.
func (l *logFile) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end, err := l.now.Seek(0, io.SeekEnd); err == nil && end > maxLog && l.before != nil {
		l.turn()
	}
	_, _ = fmt.Fprintln(l.now, time.Now().UTC().Format(time.RFC3339), text)
}

// turn moves what is there to the file before.
func (l *logFile) turn() {
	if l.before.Truncate(0) != nil {
		return
	}
	_, _ = l.before.Seek(0, io.SeekStart)
	_, _ = l.now.Seek(0, io.SeekStart)
	_, _ = io.Copy(l.before, l.now)
	if l.now.Truncate(0) == nil {
		_, _ = l.now.Seek(0, io.SeekStart)
	}
}

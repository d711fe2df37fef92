package keeper

import "sync"

// tailSize bounds what is kept of a console, in bytes.
const tailSize = 16 << 10

// tail is a writer that remembers the end of what was written.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailSize):]...)
	if over := len(t.buf) - tailSize; over > tailSize { // copy seldom
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf[max(0, len(t.buf)-tailSize):])
}

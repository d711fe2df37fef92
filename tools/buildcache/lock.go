package buildcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// poll is how often a held lock is tried again: flock cannot wait for a context.
const poll = 100 * time.Millisecond

// Lock takes the lock called name for this process and returns how to give it
// back. waiting, if not nil, is called once if somebody else has it. The kernel
// gives the lock back when the process dies, however it dies.
func (c *Cache) Lock(ctx context.Context, name string, waiting func()) (func(), error) {
	path := filepath.Join(c.dir, locks, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the build cache: %w", err)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

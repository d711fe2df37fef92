//go:build linux

package files

import (
	"sync"
	"sync/atomic"

	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// fid is one handle of the guest. It is counted, so that a descriptor can not
// be closed, and its number given to another file, while a request uses it.
type fid struct {
	node *beneath.Node
	refs atomic.Int32

	mu    sync.Mutex
	file  *beneath.File // nil until opened; then it stays
	read  bool
	write bool

	unlocked bool // guarded by lockTable.mu: clunked, can hold no locks
}

func newFID(n *beneath.Node) *fid {
	f := &fid{node: n}
	f.refs.Store(1)
	return f
}

// release gives back one reference; the last one closes.
func (f *fid) release() {
	if f.refs.Add(-1) != 0 {
		return
	}
	if f.file != nil {
		f.file.Close()
	}
	f.node.Release()
}

// opened returns the open file, or nil.
func (f *fid) opened() (file *beneath.File, read, write bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file, f.read, f.write
}

// fidTable maps the guest's numbers to handles.
type fidTable struct {
	max int

	mu   sync.Mutex
	byID map[uint32]*fid
}

// get returns the handle with a reference that the caller releases.
func (t *fidTable) get(id uint32) (*fid, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.byID[id]
	if !ok {
		return nil, unix.EBADF
	}
	f.refs.Add(1)
	return f, nil
}

// add puts a new handle under a free number.
func (t *fidTable) add(id uint32, f *fid) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.byID[id]; taken || id == wire.NoFID {
		return unix.EBADF
	}
	if len(t.byID) >= t.max {
		return unix.ENFILE
	}
	t.byID[id] = f
	return nil
}

// swap puts a new handle in the place of old, if that is still there.
func (t *fidTable) swap(id uint32, old, f *fid) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[id] != old {
		return unix.EBADF
	}
	t.byID[id] = f
	return nil
}

// remove takes a handle out; the caller releases it.
func (t *fidTable) remove(id uint32) (*fid, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.byID[id]
	if !ok {
		return nil, unix.EBADF
	}
	delete(t.byID, id)
	return f, nil
}

// clear drops every handle and its locks. No request may be running.
func (t *fidTable) clear(s *session) {
	t.mu.Lock()
	old := t.byID
	t.byID = map[uint32]*fid{}
	t.mu.Unlock()
	for _, f := range old {
		s.locks.forget(f)
		f.release()
	}
}

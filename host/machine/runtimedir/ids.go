package runtimedir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// IDs is a range of host uids and gids that one sandbox has to itself.
type IDs struct {
	Base uint32
	lock *os.File
}

// The pool lies in the part of the uid space that distributions leave to
// containers, above the ranges that useradd hands out in /etc/subuid.
const (
	IDsPerSandbox = 1 << 16
	firstID       = 0x5be00000
	idRanges      = 256
)

// TakeIDs reserves a range until every copy of its lock is closed.
func (r *Root) TakeIDs() (*IDs, error) {
	for n := range uint32(idRanges) {
		f, err := lock(filepath.Join(r.path, "ids", strconv.Itoa(int(n))), os.O_CREATE)
		if err == nil {
			return &IDs{Base: firstID + n*IDsPerSandbox, lock: f}, nil
		}
	}
	return nil, fmt.Errorf("cannot reserve uids for a sandbox: all %d ranges are taken or locked", idRanges)
}

// Lock is the open lock: a process that inherits it keeps the range reserved.
func (i *IDs) Lock() *os.File { return i.lock }

// Release gives this process's hold on the range up.
func (i *IDs) Release() { i.lock.Close() }

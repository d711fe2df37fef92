package audit

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

// stored reads the hashes of the tree from its file, one after the other in the
// order of tlog.StoredHashIndex.
func stored(f *os.File) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		list := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			if _, err := f.ReadAt(list[i][:], index*tlog.HashSize); err != nil {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return nil, fmt.Errorf("cannot read hash %d of the tree: %w", index, err)
			}
		}
		return list, nil
	})
}

// hashesSize is the size of the file for n records, in bytes.
func hashesSize(n int64) int64 { return tlog.StoredHashCount(n) * tlog.HashSize }

// addHash appends what a new leaf adds to the file.
func addHash(f *os.File, n int64, line []byte) error {
	list, err := tlog.StoredHashes(n, line, stored(f))
	if err != nil {
		return err
	}
	raw := make([]byte, 0, len(list)*tlog.HashSize)
	for _, h := range list {
		raw = append(raw, h[:]...)
	}
	_, err = f.WriteAt(raw, hashesSize(n))
	return err
}

// frontier holds the roots of the complete subtrees from left to right, of
// falling size: enough to go on with, and to know the root.
type frontier struct {
	n     int64
	roots []tlog.Hash
}

// add takes a leaf and returns the hashes that tlog would store for it.
func (t *frontier) add(leaf tlog.Hash) []tlog.Hash {
	list := []tlog.Hash{leaf}
	h := leaf
	for m := t.n; m&1 == 1; m >>= 1 {
		last := len(t.roots) - 1
		h = tlog.NodeHash(t.roots[last], h)
		t.roots = t.roots[:last]
		list = append(list, h)
	}
	t.roots = append(t.roots, h)
	t.n++
	return list
}

// root is the hash of the tree so far.
func (t *frontier) root() tlog.Hash {
	if len(t.roots) == 0 {
		h, _ := tlog.TreeHash(0, nil) // of the empty tree, which reads nothing
		return h
	}
	h := t.roots[len(t.roots)-1]
	for i := len(t.roots) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.roots[i], h)
	}
	return h
}

// frontierAt reads the frontier of the first n records from stored hashes.
func frontierAt(n int64, r tlog.HashReader) (frontier, error) {
	t := frontier{n: n}
	var indexes []int64
	begin := int64(0)
	for level := 62; level >= 0; level-- {
		if n&(1<<level) != 0 {
			indexes = append(indexes, tlog.StoredHashIndex(level, begin>>level))
			begin += 1 << level
		}
	}
	if len(indexes) == 0 {
		return t, nil
	}
	var err error
	t.roots, err = r.ReadHashes(indexes)
	return t, err
}

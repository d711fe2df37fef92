//go:build linux

package files

import (
	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// attach: fid[4] afid[4] uname[s] aname[s] n_uname[4]. Who the guest says it
// is has no meaning here.
func (r *request) attach() error {
	id, auth := r.in.U32(), r.in.U32()
	_, tree, _ := r.in.String(), r.in.String(), r.in.U32()
	if err := r.args(); err != nil {
		return err
	}
	if auth != wire.NoFID || tree != "" && tree != "/" {
		return unix.ENOENT
	}
	f := newFID(r.root.Dir())
	if err := r.fids.add(id, f); err != nil {
		f.release()
		return err
	}
	r.out.QID(r.qid(f.node))
	return nil
}

// flush: oldtag[2]. Requests are short and are not cut off; the answer comes
// after theirs.
func (r *request) flush() error {
	old := r.in.U16()
	if err := r.args(); err != nil {
		return err
	}
	r.tags.wait(old)
	return nil
}

// walk: fid[4] newfid[4] nwname[2] nwname*(wname[s]).
func (r *request) walk() error {
	from, to, n := r.in.U32(), r.in.U32(), int(r.in.U16())
	if n > wire.MaxWalk {
		return unix.EINVAL
	}
	names := make([]string, n)
	for i := range names {
		names[i] = r.in.String()
	}
	if err := r.args(); err != nil {
		return err
	}
	f, err := r.fids.get(from)
	if err != nil {
		return err
	}
	defer f.release()
	node, qids, err := r.descend(f.node, names)
	if err != nil && len(qids) == 0 {
		return err
	}
	if err == nil {
		if err := r.install(from, to, f, newFID(node)); err != nil {
			return err
		}
	}
	// A walk that ended early says how far it came and makes no handle.
	r.out.U16(uint16(len(qids)))
	for _, q := range qids {
		r.out.QID(q)
	}
	return nil
}

// descend looks the names up one after the other, and returns the last node
// with a reference, or an error and the ids of those found before it.
func (r *request) descend(n *beneath.Node, names []string) (*beneath.Node, []wire.QID, error) {
	n = n.Acquire()
	if len(names) == 0 {
		return n, nil, nil
	}
	at, err := r.root.Where(n)
	var qids []wire.QID
	for _, name := range names {
		var next *beneath.Node
		if err == nil {
			at = join(at, name)
			next, err = r.lookup(n, at, name)
		}
		n.Release()
		if err != nil {
			return nil, qids, err
		}
		n = next
		qids = append(qids, r.qid(n))
	}
	return n, qids, nil
}

func (r *request) lookup(dir *beneath.Node, rel, name string) (*beneath.Node, error) {
	if err := beneath.CheckName(name); err != nil {
		return nil, err
	}
	if r.names.hidden(rel) {
		return nil, unix.ENOENT
	}
	return dir.Lookup(name)
}

// install puts the result of a walk under its number, which may be the number
// of the handle it came from.
func (r *request) install(from, to uint32, old, f *fid) error {
	if from != to {
		err := r.fids.add(to, f)
		if err != nil {
			f.release()
		}
		return err
	}
	if file, _, _ := old.opened(); file != nil {
		f.release()
		return unix.EBUSY
	}
	if err := r.fids.swap(from, old, f); err != nil {
		f.release()
		return err
	}
	old.release() // the table's own reference
	return nil
}

// clunk: fid[4].
func (r *request) clunk() error {
	f, err := r.takeFID()
	if err != nil {
		return err
	}
	f.release()
	return nil
}

// remove: fid[4]. The handle goes even though the removal is not done.
func (r *request) remove() error {
	f, err := r.takeFID()
	if err != nil {
		return err
	}
	f.release()
	return unix.EOPNOTSUPP
}

func (r *request) takeFID() (*fid, error) {
	id := r.in.U32()
	if err := r.args(); err != nil {
		return nil, err
	}
	f, err := r.fids.remove(id)
	if err != nil {
		return nil, err
	}
	r.locks.forget(f)
	return f, nil
}

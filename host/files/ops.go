//go:build linux

package files

import (
	"github.com/berthos/berth/host/files/beneath"
	"github.com/berthos/berth/host/files/wire"
	"golang.org/x/sys/unix"
)

// op is one request of the protocol.
type op struct {
	changes bool // refused with EROFS when the folder is shared read-only
	run     func(*request) error
}

// ops is everything a guest can ask for; what is not here is EOPNOTSUPP.
// Missing on purpose: Trename and Tremove (older forms of Trenameat and
// Tunlinkat that name no directory), Tauth, and extended attributes.
var ops = map[wire.Type]op{
	wire.Tattach:   {false, (*request).attach},
	wire.Tflush:    {false, (*request).flush},
	wire.Twalk:     {false, (*request).walk},
	wire.Tclunk:    {false, (*request).clunk},
	wire.Tremove:   {false, (*request).remove},
	wire.Tgetattr:  {false, (*request).getattr},
	wire.Tsetattr:  {true, (*request).setattr},
	wire.Tstatfs:   {false, (*request).statfs},
	wire.Tlopen:    {false, (*request).open}, // decides itself: it may be for writing
	wire.Tread:     {false, (*request).read},
	wire.Twrite:    {true, (*request).write},
	wire.Tfsync:    {false, (*request).fsync},
	wire.Treaddir:  {false, (*request).readdir},
	wire.Treadlink: {false, (*request).readlink},
	wire.Tlcreate:  {true, (*request).create},
	wire.Tmkdir:    {true, (*request).mkdir},
	wire.Tmknod:    {true, (*request).mknod},
	wire.Tsymlink:  {true, (*request).symlink},
	wire.Tlink:     {true, (*request).link},
	wire.Trenameat: {true, (*request).rename},
	wire.Tunlinkat: {true, (*request).unlink},
	wire.Tlock:     {false, (*request).lock},
	wire.Tgetlock:  {false, (*request).getlock},
}

// args is called when a handler has read its fields.
func (r *request) args() error {
	if !r.in.OK() {
		return unix.EINVAL
	}
	return nil
}

// handle ends the fields of a message about one handle, and returns it. The
// caller releases it.
func (r *request) handle(id uint32) (*fid, error) {
	if err := r.args(); err != nil {
		return nil, err
	}
	return r.fids.get(id)
}

// qid is how the guest tells files apart. The version is 0, which tells the
// Linux client to cache no content beyond a mapping: the host edits as well.
func (r *request) qid(n *beneath.Node) wire.QID {
	q := wire.QID{Path: r.ids.number(n.Dev, n.Ino)}
	switch n.Type {
	case unix.S_IFDIR:
		q.Type = wire.QTDir
	case unix.S_IFLNK:
		q.Type = wire.QTSymlink
	}
	return q
}

// place is where a name in a directory is, judged before it is used.
// Excluded names do not exist.
func (r *request) place(dir *beneath.Node, name string) (string, error) {
	if err := beneath.CheckName(name); err != nil {
		return "", err
	}
	at, err := r.root.Where(dir)
	if err != nil {
		return "", err
	}
	rel := join(at, name)
	if r.names.hidden(rel) {
		return rel, unix.ENOENT
	}
	return rel, nil
}

// newPlace is place for a name that is about to come into being or to go.
// isDir says what it will be or is.
func (r *request) newPlace(op string, dir *beneath.Node, name string, isDir bool) (string, error) {
	rel, err := r.place(dir, name)
	if err == unix.ENOENT && rel != "" {
		return rel, r.refuse(op, rel)
	}
	if err == nil && r.names.protected(rel, isDir) {
		return rel, r.refuse(op, rel)
	}
	return rel, err
}

// changeable reports whether the guest may change an existing object.
func (r *request) changeable(op string, n *beneath.Node) error {
	rel, err := r.root.Where(n)
	if err != nil {
		return err
	}
	if rel != "" && (r.names.hidden(rel) || r.names.protected(rel, n.IsDir())) {
		return r.refuse(op, rel)
	}
	return nil
}

func (r *request) refuse(op, rel string) error {
	r.opt.Refused(op, rel)
	return unix.EACCES
}

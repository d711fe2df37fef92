package native

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
)

// plan is everything that the keeper and the stub need to know to build the
// sandbox's mount tree. Descriptors travel beside it.
type plan struct {
	Root   bool        `json:"root"`   // started by root: a range of ids, idmapped mounts
	Base   uint32      `json:"base"`   // first host id of the range
	Stage  string      `json:"stage"`  // folder on which the stage is mounted
	Data   int64       `json:"data"`   // bytes of the root file system in its image
	Unpack bool        `json:"unpack"` // do not even try to mount it
	Shares []planShare `json:"shares"`
	Init   []string    `json:"init"` // arguments of /sbin/init
	Pass   int         `json:"pass"` // how many descriptors, from 3 on, /sbin/init inherits
}

// planShare is a folder of the host, held fast by its inode: the path was
// resolved by berth, and another folder in its place is refused.
type planShare struct {
	Name     string `json:"name"`
	Dir      name   `json:"dir"`
	Dev      uint64 `json:"dev"`
	Ino      uint64 `json:"ino"`
	UID      uint32 `json:"uid"` // the folder's owner
	GID      uint32 `json:"gid"`
	ReadOnly bool   `json:"read_only"`
	Hide     []name `json:"hide,omitempty"`    // places below Dir that are covered by something empty
	Protect  []name `json:"protect,omitempty"` // places below Dir that are read-only
}

// name is a path of the host. It need not be UTF-8, which is all that JSON's
// strings can hold.
type name string

// MarshalJSON writes the bytes as base64.
func (n name) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(n)) }

// UnmarshalJSON reads them.
func (n *name) UnmarshalJSON(raw []byte) error {
	var b []byte
	err := json.Unmarshal(raw, &b)
	*n = name(b)
	return err
}

func names(in []string) (out []name) {
	for _, s := range in {
		out = append(out, name(s))
	}
	return out
}

// appID is the uid and gid, inside, of apps with a workspace.
const appID = 10000

// bindDir is where the guest finds a share.
func bindDir(name string) string { return "/run/berth/shares/" + name }

// look fills in what holds a share's folder fast.
func (s *planShare) look() error {
	fd, st, err := s.open()
	if err != nil {
		return err
	}
	unix.Close(fd)
	s.Dev, s.Ino, s.UID, s.GID = uint64(st.Dev), st.Ino, st.Uid, st.Gid
	return nil
}

func (s *planShare) open() (fd int, st unix.Stat_t, err error) {
	fd, err = unix.Open(string(s.Dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, &os.PathError{Op: "open", Path: string(s.Dir), Err: err}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, &os.PathError{Op: "stat", Path: string(s.Dir), Err: err}
	}
	return fd, st, nil
}

// reopen opens the folder in this mount namespace and refuses any other inode.
func (s *planShare) reopen() (int, error) {
	fd, st, err := s.open()
	if err != nil {
		return -1, err
	}
	if uint64(st.Dev) != s.Dev || st.Ino != s.Ino {
		unix.Close(fd)
		return -1, hint.Errorf("start again", "%s is not the folder that it was a moment ago", s.Dir)
	}
	return fd, nil
}

func parsePlan(raw []byte) (p plan, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("cannot read plan: %w", err)
	}
	return p, nil
}

package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// perUser bounds what the kernel counts for a user, and so for root or for the
// user who started berth together with everything that they run: an app that
// took all of it would take it from the host. The sandbox's user namespace has
// limits of its own below those.
var perUser = []struct{ name, most string }{
	{"max_inotify_instances", "32"},
	{"max_inotify_watches", "32768"},
	{"max_fanotify_groups", "0"},
	{"max_fanotify_marks", "0"},
}

// boundUser sets them; the kernel lets no app raise them again, since each lacks
// the capability and sees no such file. A kernel without one does not have the
// thing.
func boundUser(plan, *os.File) error {
	for _, l := range perUser {
		name := filepath.Join(rootDir, "proc/sys/user", l.name)
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = f.WriteString(l.most)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("cannot set user.%s: %w", l.name, err)
		}
	}
	return nil
}

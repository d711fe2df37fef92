package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/sdk/protocol"
)

func TestCalls(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, nil)
		if _, err := r.call("write", obj{"path": "/workspace/new", "content": "from the app"}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(r.ws, "new"))
		if err != nil || string(raw) != "from the app" {
			t.Errorf("on the host: %q, %v", raw, err)
		}
		if got, err := r.call("read", obj{"path": filepath.Join(r.ws, "new")}); err != nil || got != "from the app" {
			t.Errorf("under the folder's own path: %q, %v", got, err)
		}
		for path, errno := range map[string]string{"/tmp/x": "EACCES", "/etc/x": "EROFS EACCES", "/workspace/../x": "EROFS EACCES"} {
			_, err := r.call("write", obj{"path": path, "content": "x"})
			var e *protocol.Error
			if !errors.As(err, &e) || !strings.Contains(errno, e.Errno) || e.Errno == "" {
				t.Errorf("write to %s: %v, want one of %s", path, err, errno)
			}
		}
	})
}

// A VM needs no privilege, and files belong to whoever started it.
func TestVMAsOrdinaryUser(t *testing.T) {
	machinetest.AsUser(t, shared(t), func(t *testing.T) {
		r := emulated(t).mustStart(t, nil)
		if _, err := r.call("write", obj{"path": "/workspace/new", "content": "x"}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(r.ws, "new"))
		must(t, err)
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
			t.Errorf("the file belongs to %d:%d", st.Uid, st.Gid)
		}
		r.refused(t, "/tmp/x", "EACCES")
	})
}

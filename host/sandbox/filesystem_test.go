package sandbox_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

// envManifest names the manifest for tests that run again elsewhere.
const envManifest = "BERTH_TEST_MANIFEST"

// TestFilesystemApp runs the app of the verified root with its own manifest:
// the path of a run from beginning to end.
func TestFilesystemApp(t *testing.T) {
	machines(t, func(t *testing.T, w world) {
		r := w.mustStart(t, func(o *sandbox.Options) { o.Apps = []sandbox.App{w.filesystem(t)} })
		call := func(export string, input obj) (string, error) {
			raw, err := json.Marshal(input)
			must(t, err)
			out, err := r.Call(t.Context(), sandbox.CallRequest{App: "filesystem", Export: export, Input: raw})
			return string(out), err
		}
		if _, err := call("write_file", obj{"path": "hello.txt", "content": "hello from a sandbox"}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(r.ws, "hello.txt"))
		if err != nil || string(raw) != "hello from a sandbox" {
			t.Errorf("on the host: %q, %v", raw, err)
		}
		if out, err := call("read_file", obj{"path": "hello.txt"}); err != nil || !strings.Contains(out, "hello from a sandbox") {
			t.Errorf("read back: %s, %v", out, err)
		}
		for path, errnos := range map[string]string{"/tmp/escape.txt": "EACCES", "/etc/x": "EROFS EACCES"} {
			_, err := call("write_file", obj{"path": path, "content": "x"})
			var e *protocol.Error
			if !errors.As(err, &e) || e.Errno == "" || !strings.Contains(errnos, e.Errno) {
				t.Errorf("write to %s: %v, want one of %s", path, err, errnos)
			}
			if path == "/tmp/escape.txt" {
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("%s is on the host: %v", path, err)
				}
			}
		}
	})
}

func (w world) filesystem(t testing.TB) sandbox.App {
	t.Helper()
	file := manifestFile(t)
	raw, err := os.ReadFile(file)
	must(t, err)
	m, err := manifest.Parse(file, raw)
	must(t, err)
	for _, app := range w.image.Index.Apps {
		if app.Name != m.Name {
			continue
		}
		p, _, err := compile.Compile(m, app.Code)
		must(t, err)
		policy, err := p.Encode()
		must(t, err)
		return sandbox.App{Policy: policy, InRoot: true}
	}
	t.Fatal("the image has no app filesystem")
	return sandbox.App{}
}

func manifestFile(t testing.TB) string {
	if file := os.Getenv(envManifest); file != "" {
		return file
	}
	file, err := filepath.Abs("../../apps/filesystem/berth.yml")
	must(t, err)
	return file
}

// Package machinetest owns what tests of machines need: above all, to run again
// as an ordinary user when the tests run as root.
package machinetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// userID is an id that no account has.
const userID = 54321

// envAsUser marks the second run.
const envAsUser = "BERTH_TEST_AS_USER"

// Both runs f as a subtest for each kind of user that this process can be: as
// it is, and, if it is root, once more in a new process as an ordinary user. In
// that process only the calling test runs, and there f runs only once. Folders
// for the new process are in its TMPDIR; keep passes more of the environment.
func Both(t *testing.T, keep []string, f func(t *testing.T)) {
	if os.Getenv(envAsUser) != "" {
		f(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Run("user", f)
		return
	}
	t.Run("root", f)
	t.Run("user", func(t *testing.T) { asUser(t, keep) })
}

// AsUser runs f as an ordinary user only.
func AsUser(t *testing.T, keep []string, f func(t *testing.T)) {
	if os.Geteuid() != 0 {
		f(t)
		return
	}
	asUser(t, keep)
}

func asUser(t *testing.T, keep []string) {
	tmp, err := os.MkdirTemp("", "berth-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	if err := os.Chown(tmp, userID, userID); err != nil {
		t.Fatal(err)
	}
	exe := readable(t)
	top := t.Name()
	for i := range top {
		if top[i] == '/' {
			top = top[:i]
			break
		}
	}
	cmd := exec.Command(exe, "-test.run=^"+top+"$", "-test.v")
	cmd.Dir = tmp
	cmd.Env = append(keep, envAsUser+"=1", "TMPDIR="+tmp, "HOME="+tmp, "PATH="+os.Getenv("PATH"), "CI="+os.Getenv("CI"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}}
	out, err := cmd.CombinedOutput()
	t.Logf("as uid %d:\n%s", userID, out)
	if err != nil {
		t.Errorf("as an ordinary user: %v", err)
	}
}

// readable returns a copy of the test program that anybody may execute.
func readable(t *testing.T) string {
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := Folder(t)
	exe := filepath.Join(dir, "test")
	if err := os.WriteFile(exe, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	return exe
}

// Folder returns a new folder that, unlike t.TempDir, others may enter.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Again reports whether this process is the second run, as an ordinary user.
func Again() bool { return os.Getenv(envAsUser) != "" }

package qemu

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/host/machine/keeper"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == StubArg {
		os.Exit(Stub(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// asVMM runs a program in QEMU's place and returns what it printed.
func asVMM(t *testing.T, p plan) string {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	planFile, err := keeper.MemFile("plan", raw)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := keeper.MemFile("inherited", []byte("inherited\n"))
	if err != nil {
		t.Fatal(err)
	}
	reports, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe", StubArg)
	cmd.ExtraFiles = []*os.File{theirs, planFile, inherited}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if report, _ := io.ReadAll(reports); len(report) > 0 {
		t.Fatalf("the stub failed: %s", report)
	}
	_ = cmd.Wait() // what it printed is what matters
	return out.String()
}

// A process in QEMU's place reaches its libraries and what it inherited, and no
// other file of the host, whoever owns it.
func TestConfinement(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o777); err != nil { // so that nothing but the confinement is in the way
			t.Fatal(err)
		}
	}
	sh := func(script string) string {
		p := plan{Path: "/bin/sh", Args: []string{"-c", script}, Last: fdLink}
		if os.Geteuid() == 0 {
			p.ID = 0x5be00000
		}
		return asVMM(t, p)
	}
	control, err := exec.Command("/bin/sh", "-c", "cat "+secret).Output()
	if err != nil || string(control) != "secret\n" {
		t.Fatalf("control: %q, %v", control, err)
	}
	if got := sh("cat <&5"); got != "inherited\n" {
		t.Errorf("what it inherited: %q", got)
	}
	if got := sh("cat " + secret); !strings.Contains(got, "Permission denied") {
		t.Errorf("a file of the host: %q", got)
	}
	if got := sh("echo x >" + filepath.Join(dir, "new")); !strings.Contains(got, "Permission denied") && !strings.Contains(got, "cannot create") {
		t.Errorf("a new file on the host: %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Errorf("it made a file: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if got := strings.Fields(sh("id -u; id -g; id -G")); strings.Join(got, " ") != "1541406720 1541406720 1541406720" {
		t.Errorf("identity: %v", got)
	}
}

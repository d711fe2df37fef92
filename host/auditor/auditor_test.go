package auditor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/audit"
)

const envConfined = "AUDITOR_TEST_CONFINED" // a folder

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		os.Exit(Main())
	}
	if dir := os.Getenv(envConfined); dir != "" {
		os.Exit(confinedMain(dir))
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T) (*Client, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	f, err := Start(dir)
	must(t, err)
	defer f.Close()
	c, err := NewClient(f)
	must(t, err)
	t.Cleanup(func() { c.conn.Close() })
	return c, dir
}

func verdict(t *testing.T, dir string) audit.Verdict {
	t.Helper()
	trail, err := audit.OpenTrail(dir)
	must(t, err)
	defer trail.Close()
	v, err := trail.Verify(nil)
	must(t, err)
	return v
}

// child is the auditor that this test has started.
func child(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	must(t, err)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		must(t, err)
		for _, text := range strings.Fields(string(raw)) {
			line, err := os.ReadFile("/proc/" + text + "/cmdline")
			if err == nil && strings.Contains(string(line), Arg) {
				pid, err := strconv.Atoi(text)
				must(t, err)
				return pid
			}
		}
	}
	t.Fatal("no auditor")
	return 0
}

func TestRecords(t *testing.T) {
	c, dir := start(t)
	for n := range int64(20) {
		seq, err := c.Append(audit.Record{Kind: audit.KindCall, App: "notes"})
		must(t, err)
		if seq != n {
			t.Errorf("record %d has number %d", n, seq)
		}
	}
	if v := verdict(t, dir); !v.OK() || v.Records != 20 {
		t.Errorf("%+v", v)
	}
	_, err := c.AppendSync(audit.Record{Kind: audit.KindStart})
	must(t, err)
	if v := verdict(t, dir); v.Signed != 21 {
		t.Errorf("what had to be on the disk is not signed: %+v", v)
	}
	_, err = c.Append(audit.Record{Kind: audit.KindCall})
	must(t, err)
	for range 100 { // what waits is signed by itself
		if verdict(t, dir).Signed == 22 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if v := verdict(t, dir); v.Signed != 22 {
		t.Errorf("the last record was not signed: %+v", v)
	}
	if _, err := c.Append(audit.Record{Kind: "nonsense"}); err == nil {
		t.Error("nonsense was recorded")
	}
	if _, err := c.Append(audit.Record{Kind: audit.KindCall, Reason: strings.Repeat("x", 2*maxPacket)}); err == nil {
		t.Error("a record without end was recorded")
	}
	_, err = c.Append(audit.Record{Kind: audit.KindCall}) // and it goes on
	must(t, err)
}

// Without its auditor a client records nothing, and says so each time.
func TestAuditorDies(t *testing.T) {
	c, dir := start(t)
	_, err := c.Append(audit.Record{Kind: audit.KindCall})
	must(t, err)
	must(t, unix.Kill(child(t), unix.SIGKILL))
	for range 2 {
		if _, err := c.Append(audit.Record{Kind: audit.KindCall}); err == nil {
			t.Error("it was recorded by nobody")
		}
	}
	if v := verdict(t, dir); !v.OK() || v.Records != 1 {
		t.Errorf("%+v", v)
	}
}

// One that nobody holds any more ends, after it has signed everything.
func TestAuditorEnds(t *testing.T) {
	c, dir := start(t)
	_, err := c.Append(audit.Record{Kind: audit.KindCall})
	must(t, err)
	pid := child(t)
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} { // it outlives whom it serves
		must(t, unix.Kill(pid, s))
	}
	_, err = c.Append(audit.Record{Kind: audit.KindStop})
	must(t, err)
	c.conn.Close()
	for range 100 {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if v := verdict(t, dir); !v.OK() || v.Signed != 2 {
		t.Errorf("%+v", v)
	}
}

func TestRefusedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(dir, nil, 0o600))
	if f, err := Start(dir); err == nil {
		f.Close()
		t.Error("a file is a folder")
	}
}

// confinedMain tries what an auditor has no need of, before and after.
func confinedMain(dir string) int {
	try := func() string {
		_, read := os.ReadFile("/etc/passwd")
		run := exec.CommandContext(context.Background(), "/bin/true").Run()
		write := os.WriteFile(filepath.Join(filepath.Dir(dir), "outside"), nil, 0o600)
		own := os.WriteFile(filepath.Join(dir, "own"), nil, 0o600)
		return fmt.Sprint(read == nil, run == nil, write == nil, own == nil)
	}
	before := try()
	if err := confine(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Print(before, ", ", try())
	return 0
}

func TestConfined(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	must(t, os.Mkdir(dir, 0o700))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envConfined+"="+dir)
	out, err := cmd.Output()
	must(t, err)
	if string(out) != "true true true true, false false false true" {
		t.Errorf("%s", out)
	}
}

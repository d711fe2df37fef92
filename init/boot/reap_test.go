package boot

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// orphansEnv makes the test binary a process that adopts orphans and reaps
// them as PID 1 does.
const orphansEnv = "BERTH_TEST_ORPHANS"

// TestReapsOrphansAndNobodyElse starts many children that leave orphans behind
// and end with a status of their own: every status must arrive, and no zombie
// may be left.
func TestReapsOrphansAndNobodyElse(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), orphansEnv+"=200")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func orphans(count string) int {
	n, err := strconv.Atoi(count)
	if err != nil || unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		return 2
	}
	sys := realSystem("", os.Exit)
	p := newPID1("native-root", NativeConfig{}, sys)
	if err := p.startReaping(context.Background()); err != nil {
		return 2
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		return 2
	}
	wrong := 0
	for i := range n {
		want := i % 100
		script := fmt.Sprintf("(exit 1 & exit 1 &) & exit %d", want)
		child, err := p.procs.start(sh, []string{"sh", "-c", script}, nil, []uintptr{0, 1, 2}, &syscall.SysProcAttr{})
		if err != nil {
			fmt.Println(err)
			return 2
		}
		<-child.exited
		if got := child.status.ExitStatus(); got != want {
			fmt.Printf("child %d: status %d, want %d\n", i, got, want)
			wrong++
		}
	}
	for descendants() > 0 { // the last orphans may still run
		p.procs.reap()
	}
	if wrong > 0 {
		return 1
	}
	return 0
}

// descendants counts the children of this process, zombies included.
func descendants() int {
	n := 0
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		n += len(strings.Fields(string(raw)))
	}
	return n
}

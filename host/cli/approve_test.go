package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

func init() { commands["terminal"], commands["shows"] = onTerminal, shows }

// shows is the command shows FILE TEXT: it waits until the file has the text.
func shows(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(2 * time.Minute)
	for tick := time.Tick(50 * time.Millisecond); ; <-tick {
		raw, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(raw), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not show %q but %q", args[0], args[1], raw)
		}
	}
}

// onTerminal is the command terminal ANSWER OUT PROGRAM ARG...: it runs a program on
// a terminal of its own, types the answer, and keeps what it prints in OUT.
func onTerminal(ts *testscript.TestScript, neg bool, args []string) {
	var program string
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, args[2])); err == nil && !info.IsDir() && program == "" {
			program = filepath.Join(dir, args[2])
		}
	}
	out, err := onPTY(ts, args[0]+"\n", program, args[3:])
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), out, 0o644))
	ts.Logf("[terminal]\n%s", out)
	if failed := err != nil; failed != neg {
		ts.Fatalf("%v", err)
	}
}

func onPTY(ts *testscript.TestScript, typed, program string, args []string) ([]byte, error) {
	master, slave, err := openPTY()
	ts.Check(err)
	defer master.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "BERTH_RUNTIME_DIR", "XDG_CONFIG_HOME", "TESTSCRIPT_COMMAND"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		slave.Close()
		return nil, err
	}
	slave.Close()
	if _, err := io.WriteString(master, typed); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := io.Copy(&out, master); err != nil && !errors.Is(err, unix.EIO) { // EIO: nobody has the other end
		return nil, err
	}
	return out.Bytes(), cmd.Wait()
}

func openPTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

package sandbox_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthos/berth/init/sandbox"
	"golang.org/x/sys/unix"
)

// This file is a machine and a PID 1 for the tests: the test program, started
// again in namespaces of its own, builds a small root file system, starts
// agent-init the way init/boot does, and answers its report.

// job is what the machine is told to do, as JSON in its standard input.
type job struct {
	Base    string       // a folder of the host that holds what newBase put there
	Spec    sandbox.Spec // Shares' Source are folders of the host
	Plain   []string     // instead of the enforcer: execute this, unrestricted (the control)
	NoGo    bool         // close FDGo without 'g'
	Cgroups []string     // cgroup.procs files of the host to hand over
	Extra   int          // descriptors above those of the contract, left open by mistake
	SkipNS  uintptr      // namespaces that are not made
	Break   string       // damage to the root: "no-dev-full", "wrong-dev-null", "no-etc", "no-filter", "open-filter", "torn-filter"
	Stop    string       // once this line is printed, send SIGTERM to agent-init
	Swap    []string     // once enforced, in the first share: put the second name, or a symlink to it, in place of the first
	Times   int          // start it so often, one after the other
	Drop    bool         // once enforced, drop the kernel's caches
	Call    string       // once enforced, connect to the app's socket and send this line
}

// outcome is what came of it.
type outcome struct {
	Reports []sandbox.Report
	Code    int
	Stdout  string
	Stderr  string
	Answer  string
	Took    []time.Duration // from the start of agent-init, or of what is executed instead, to its end
	Parent  string          // status and descriptors of the supervisor, once enforced
	Error   string          // the machine itself failed
}

func (o outcome) failed() *sandbox.StepFailed {
	for _, r := range o.Reports {
		if r.Failed != nil {
			return r.Failed
		}
	}
	return nil
}

func (o outcome) enforced() *sandbox.EnforcedDone {
	for _, r := range o.Reports {
		if r.Enforced != nil {
			return r.Enforced
		}
	}
	return nil
}

// machineMain is the test program as a machine.
func machineMain() {
	var o outcome
	var j job
	err := json.NewDecoder(os.Stdin).Decode(&j)
	if err == nil {
		err = j.buildRoot()
	}
	for range max(1, j.Times) {
		if err == nil {
			err = j.run(&o)
		}
	}
	if err != nil {
		o.Error = err.Error()
	}
	json.NewEncoder(os.Stdout).Encode(o)
}

// buildRoot makes a root file system from the base folder and pivots into it.
func (j *job) buildRoot() error {
	root := filepath.Join(j.Base, "root")
	steps := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("berth", root, "tmpfs", 0, "mode=0755"),
	}
	for _, dir := range []string{"sbin", "lib/berth", "usr/share/berth", "dev", "proc", "run/berth/shares", "tmp", "app", "workspace", "scratch", "etc", "run/canary"} {
		steps = append(steps, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	bind := func(from, to string) {
		steps = append(steps, os.MkdirAll(filepath.Join(root, to), 0o755), unix.Mount(from, filepath.Join(root, to), "", unix.MS_BIND|unix.MS_REC, ""))
	}
	bind(filepath.Join(j.Base, "sbin"), "sbin")
	switch j.Break {
	case "no-filter":
	case "open-filter", "torn-filter":
		bind(filepath.Join(j.Base, j.Break), "lib/berth/seccomp")
	default:
		bind(filepath.Join(j.Base, "seccomp"), "lib/berth/seccomp")
	}
	if j.Break != "no-etc" {
		bind(filepath.Join(j.Base, "etc"), "usr/share/berth/etc")
	}
	bind(filepath.Join(j.Base, "code"), "run/berth/apps/attack/code")
	for i := range j.Spec.Shares {
		to := fmt.Sprintf("run/berth/shares/%d", i)
		bind(j.Spec.Shares[i].Source, to)
		j.Spec.Shares[i].Source = "/" + to
	}
	steps = append(steps, j.devices(root))
	if len(j.Plain) > 0 { // the control sees the paths that the app would see
		bind(filepath.Join(j.Base, "code"), "app")
		if len(j.Spec.Shares) > 0 {
			bind(filepath.Join(root, "run/berth/shares/0"), "workspace")
		}
		steps = append(steps, os.WriteFile(filepath.Join(root, "run/canary/canary"), nil, 0o666))
	}
	steps = append(steps,
		unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""),
		os.Chdir(root),
		unix.PivotRoot(".", "."),
		unix.Unmount(".", unix.MNT_DETACH),
		os.Chdir("/"),
	)
	return errors.Join(steps...)
}

// devices binds device nodes of the host, or, where told to, others.
func (j *job) devices(root string) error {
	var steps []error
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		from := "/dev/" + name
		switch {
		case name == "full" && j.Break == "no-dev-full":
			continue
		case name == "null" && j.Break == "wrong-dev-null":
			from = "/dev/zero"
		}
		to := filepath.Join(root, "dev", name)
		steps = append(steps, os.WriteFile(to, nil, 0o666), unix.Mount(from, to, "", unix.MS_BIND, ""))
	}
	return errors.Join(steps...)
}

const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

func (j *job) run(o *outcome) error {
	if len(j.Plain) > 0 {
		return j.runPlain(o)
	}
	j.Spec.Code = "/run/berth/apps/attack/code"
	j.Spec.Cgroups = len(j.Cgroups)
	spec, err := json.Marshal(j.Spec)
	if err != nil {
		return err
	}
	var ends [3][2]*os.File // spec, report, go: reader and writer
	for i := range ends {
		if ends[i][0], ends[i][1], err = os.Pipe(); err != nil {
			return err
		}
	}
	listener, err := listen("/run/app.sock")
	if err != nil {
		return err
	}
	theirs := []*os.File{ends[0][0], ends[1][1], ends[2][0], listener}
	cmd, err := j.command(theirs)
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start agent-init: %w", err)
	}
	for _, f := range theirs {
		f.Close()
	}
	go func() { ends[0][1].Write(spec); ends[0][1].Close() }()
	j.answer(o, cmd.Process.Pid, ends[1][0], ends[2][1])
	o.Stdout = j.watch(stdout, cmd.Process)
	err = cmd.Wait()
	o.Took = append(o.Took, time.Since(began))
	o.Stderr = stderr.String()
	o.Code = cmd.ProcessState.ExitCode()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

func listen(name string) (*os.File, error) {
	os.Remove(name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return l.File()
}

// command is agent-init with the descriptors of the contract, and more.
func (j *job) command(contract []*os.File) (*exec.Cmd, error) {
	cmd := exec.Command("/sbin/agent-init")
	cmd.ExtraFiles = append(cmd.ExtraFiles, contract...)
	for i := range j.Cgroups {
		fd, err := unix.FcntlInt(uintptr(3+i), unix.F_DUPFD_CLOEXEC, 3) // this one stays for the next start
		if err != nil {
			return nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), "cgroup.procs"))
	}
	for _, app := range j.Spec.Invoke {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if _, err := unix.Write(ends[0], []byte("to "+app)); err != nil { // stays open
			return nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(ends[1]), "invoke"))
	}
	for range j.Extra {
		f, err := os.Open("/proc/self/mountinfo")
		if err != nil {
			return nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Env = []string{"LD_PRELOAD=/x", "BERTH_SECRET=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces &^ j.SkipNS}
	return cmd, nil
}

// answer reads reports until the enforcer is done or has failed, and lets the
// app go.
func (j *job) answer(o *outcome, pid int, reports io.Reader, goW *os.File) {
	lines := bufio.NewScanner(reports)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r sandbox.Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			o.Error = fmt.Sprintf("report %q: %v", lines.Text(), err)
			return
		}
		o.Reports = append(o.Reports, r)
		if r.Enforced == nil {
			continue
		}
		o.Parent = look(pid)
		if err := j.swap(); err != nil {
			o.Error = err.Error()
		}
		if j.Drop {
			unix.Sync()
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
				o.Error = err.Error()
			}
		}
		if !j.NoGo {
			goW.Write([]byte("g"))
		}
		goW.Close()
		if j.Call != "" {
			o.Answer = call(j.Call)
		}
	}
}

// look returns what the kernel says about a process and its children.
func look(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	text := string(status)
	for _, name := range []string{"environ", "cmdline"} {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		text += fmt.Sprintf("%s %q\n", name, raw)
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, child := range all {
		status, _ := os.ReadFile(child + "/status")
		if !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			raw, _ := os.ReadFile(filepath.Join(child, name))
			text += fmt.Sprintf("child %s %q\n", name, raw)
		}
	}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		text += fmt.Sprintf("fd %s\n", to)
	}
	return text
}

func (j *job) swap() error {
	if len(j.Swap) == 0 {
		return nil
	}
	at := func(name string) string { return filepath.Join(j.Spec.Shares[0].Source, name) }
	was, now := at(j.Swap[0]), at(j.Swap[1])
	if err := os.Rename(was, was+".moved"); err != nil {
		return err
	}
	if j.Swap[2] == "symlink" {
		return os.Symlink(j.Swap[1], was)
	}
	return os.Rename(now, was)
}

// call speaks one line with the app over its listening socket.
func call(line string) string {
	c, err := net.Dial("unix", "/run/app.sock")
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	fmt.Fprintln(c, line)
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(answer)
}

// watch collects what the app prints and stops agent-init when told to.
func (j *job) watch(stdout io.Reader, p *os.Process) string {
	var all strings.Builder
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if j.Stop != "" && lines.Text() == j.Stop {
			p.Signal(syscall.SIGTERM)
		}
	}
	return all.String()
}

// runPlain is the control: the same program without any layer.
func (j *job) runPlain(o *outcome) error {
	cmd := exec.Command(j.Plain[0], j.Plain[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces &^ syscall.CLONE_NEWPID} // this process is what it attacks
	if j.Times > 0 {
		cmd.SysProcAttr.Cloneflags = namespaces
	}
	began := time.Now()
	err := cmd.Run()
	o.Took = append(o.Took, time.Since(began))
	o.Stdout, o.Stderr, o.Code = stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

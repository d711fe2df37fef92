package seccompile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/berthos/berth/init/seccomp"
	"golang.org/x/sys/unix"
)

// childRole in the environment makes the test program a child that loads the
// filters of a class and does as it is told.
const childRole = "BERTH_SECCOMP_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	os.Exit(m.Run())
}

// order is what the child is told, as JSON in its standard input.
type order struct {
	Filters [][]byte // in the order of loading
	Calls   []call2  // answered one by one
	Exec    []string // or executed
	Kill    uint32   // or one number that must end the process
}

type call2 struct {
	Nr   uint32
	Args [6]uint64
}

// The marker answers, before anything is executed, every call whose sixth
// argument is the magic number and that no later filter refuses. So verdicts
// of the real kernel can be had for any call without making it.
const (
	magic     = 0x6265727468 & 0xffffffff
	allowedAs = 4001 // an errno that nothing else gives
)

var marker = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 5*8},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: magic},
	{Code: unix.BPF_RET | unix.BPF_K, K: retErrno | allowedAs},
	{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
}

func child(role string) int {
	runtime.LockOSThread()
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return fail(err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fail(err)
	}
	if role == "answer" {
		if err := load(marker); err != nil {
			return fail(err)
		}
	}
	for _, raw := range o.Filters {
		program := unsafe.Slice((*unix.SockFilter)(unsafe.Pointer(&raw[0])), len(raw)/8)
		if err := load(program); err != nil {
			return fail(err)
		}
	}
	switch role {
	case "answer":
		var errnos []int
		for _, c := range o.Calls {
			errnos = append(errnos, int(ask(c)))
		}
		if err := json.NewEncoder(os.Stdout).Encode(errnos); err != nil {
			return fail(err)
		}
	case "kill each":
		return killEach(o.Calls)
	case "kill":
		syscall.RawSyscall(uintptr(o.Kill), 0, 0, 0)
	case "go":
		if err := ordinaryGo(); err != nil {
			return fail(err)
		}
	case "exec":
		return fail(syscall.Exec(o.Exec[0], o.Exec, os.Environ()))
	}
	return 0
}

// killEach makes each call in a process of its own and prints how each ended:
// the signal's number, 0 for none.
func killEach(calls []call2) int {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fail(err)
	}
	ends := []int{}
	for _, c := range calls {
		pid, err := callAlone(uintptr(c.Nr))
		if err != 0 {
			return fail(err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil {
			return fail(err)
		}
		end := 0
		if status.Signaled() {
			end = int(status.Signal())
		}
		ends = append(ends, end)
	}
	if err := json.NewEncoder(os.Stdout).Encode(ends); err != nil {
		return fail(err)
	}
	return 0
}

// callAlone makes one call in a child that does nothing else: of Go's runtime,
// only the calling thread exists there.
//
//go:nosplit
//go:norace
func callAlone(nr uintptr) (pid uintptr, err syscall.Errno) {
	pid, _, err = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 && err == 0 {
		syscall.RawSyscall(nr, 0, 0, 0)
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return pid, err
}

func ask(c call2) syscall.Errno {
	a := c.Args
	_, _, errno := syscall.RawSyscall6(uintptr(c.Nr), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), magic)
	return errno
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func load(program []unix.SockFilter) error {
	head := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&head)))
	if errno != 0 || thread != 0 {
		return fmt.Errorf("load filter: %v, thread %d", errno, thread)
	}
	return nil
}

// filtersOf returns a class's filters in the order of loading.
func filtersOf(t *testing.T, class seccomp.Class) [][]byte {
	t.Helper()
	files, err := Files("x86_64")
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{files[class.AllowFile()], files[class.DenyFile()]}
}

// variants returns no filters, as control, and all that an app can be under.
func variants(t *testing.T) [][][]byte {
	t.Helper()
	files, err := Files("x86_64")
	if err != nil {
		t.Fatal(err)
	}
	base, noUnix := filtersOf(t, seccomp.Base), files[seccomp.NoUnixFile]
	list := [][][]byte{nil, base, {base[0], noUnix, base[1]}}
	for _, class := range seccomp.Classes() {
		if class != seccomp.Base {
			list = append(list, filtersOf(t, class))
		}
	}
	return list
}

func tell(t *testing.T, role string, o order) (*exec.Cmd, *bytes.Buffer, error) {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childRole + "=" + role, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	cmd.Stdin = bytes.NewReader(raw)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out, cmd.Run()
}

// beforeSeccomp tells the two numbers that newer kernels answer before any
// filter: uretprobe and uprobe, by which the kernel's own trampolines return.
// From anywhere else they end the process, as TestKilled sees.
func beforeSeccomp(nr uint32) bool { return nr == 335 || nr == 336 }

// TestKernel asks the running kernel about every number and every edge of
// every condition, and compares with the profiles.
func TestKernel(t *testing.T) {
	tg := targets[0]
	for _, class := range seccomp.Classes() {
		p, err := seccomp.For(class)
		if err != nil {
			t.Fatal(err)
		}
		var o order
		var want []uint32
		for _, c := range tg.calls(p) {
			if w := tg.want(p, c); w != retKill && !beforeSeccomp(c.nr) {
				c.args[5] = magic
				o.Calls = append(o.Calls, call2{c.nr, c.args})
				want = append(want, w)
			}
		}
		o.Filters = filtersOf(t, class)
		_, out, err := tell(t, "answer", o)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var got []int
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != len(want) {
			t.Fatalf("%v: %d answers, want %d", err, len(got), len(want))
		}
		seen := map[uint32]int{}
		for i, c := range o.Calls {
			expect := map[uint32]int{retAllow: allowedAs, errEPERM: int(unix.EPERM), errNOSYS: int(unix.ENOSYS)}[want[i]]
			if got[i] != expect {
				t.Errorf("%s: %s (%d) args %x: errno %d, want %d", class, tg.callName(c.Nr), c.Nr, c.Args, got[i], expect)
			}
			seen[want[i]]++
		}
		if len(seen) != 3 {
			t.Errorf("%s: verdicts %v, want all three", class, seen)
		}
		t.Logf("%s: %d calls, verdicts %v", class, len(got), seen)
	}
}

// TestKilled makes x32 calls, which must end the process, and, as control, the
// same without a filter.
func TestKilled(t *testing.T) {
	for _, nr := range []uint32{0x40000000 | unix.SYS_GETPID, 0x40000000 | 520, 0x7fffffff} {
		cmd, out, err := tell(t, "kill", order{Filters: filtersOf(t, seccomp.Base), Kill: nr})
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if err == nil || !status.Signaled() || status.Signal() != unix.SIGSYS {
			t.Errorf("number %#x: %v, want SIGSYS\n%s", nr, cmd.ProcessState, out)
		}
		if _, out, err := tell(t, "kill", order{Kill: nr}); err != nil {
			t.Errorf("control: number %#x: %v\n%s", nr, err, out)
		}
	}
	for _, nr := range []uint32{335, 336} {
		cmd, out, err := tell(t, "kill", order{Filters: filtersOf(t, seccomp.Base), Kill: nr})
		// ENOSYS from the filter on kernels that know nothing special about it.
		if err != nil && !strings.Contains(out.String(), "SIGILL") && cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("number %d: %v, want SIGILL or nothing\n%s", nr, cmd.ProcessState, out)
		}
	}
}

// TestX32 makes every x32 call under the filters of every class, each of which
// must end the process, and, as control, without: none may.
func TestX32(t *testing.T) {
	var calls []call2
	for nr := range uint32(1024) {
		calls = append(calls, call2{Nr: 0x40000000 | nr})
	}
	for _, class := range append(seccomp.Classes(), "") {
		o := order{Calls: calls}
		want := 0
		if class != "" {
			o.Filters, want = filtersOf(t, class), int(unix.SIGSYS)
		} else {
			// Some would do what they are for where the kernel has x32: the
			// control makes one that harms nobody, and one that is none.
			o.Calls = []call2{{Nr: 0x40000000 | unix.SYS_GETPID}, {Nr: 0x40000000 | 1023}}
		}
		_, out, err := tell(t, "kill each", o)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var ends []int
		if err := json.Unmarshal(out.Bytes(), &ends); err != nil || len(ends) != len(o.Calls) {
			t.Fatalf("%v: %d ends, want %d", err, len(ends), len(o.Calls))
		}
		for i, end := range ends {
			if end != want {
				t.Errorf("class %q: number %#x: signal %d, want %d", class, o.Calls[i].Nr, end, want)
			}
		}
	}
}

// TestOrdinaryPrograms runs programs that people write apps in under the base
// class: the list must be long enough for them.
func TestOrdinaryPrograms(t *testing.T) {
	for _, p := range []struct {
		name string
		argv []string
	}{
		{"shell", []string{"/bin/sh", "-c", "set -e; cd $HOME; echo a > f; cp f g; mv g h; ls -l; cat f h | sort | uniq -c; (sleep 0 & wait); mkdir d; ln -s f d/l; rm -r d; test $(cat h) = a"}},
		{"python", []string{"python3", "-c", python}},
		{"node", []string{"node", "-e", node}},
	} {
		t.Run(p.name, func(t *testing.T) {
			path, err := exec.LookPath(p.argv[0])
			if err != nil {
				t.Skipf("%s is not installed", p.argv[0])
			}
			if path, err = filepath.EvalSymlinks(path); err != nil {
				t.Fatal(err)
			}
			for _, filters := range variants(t) {
				_, out, err := tell(t, "exec", order{Filters: filters, Exec: append([]string{path}, p.argv[1:]...)})
				if exit := (*exec.ExitError)(nil); errors.As(err, &exit) || err != nil {
					t.Errorf("with %d filters: %v\n%s", len(filters), err, out)
				}
				if strings.Contains(out.String(), "Operation not permitted") {
					t.Errorf("something was refused:\n%s", out)
				}
			}
		})
	}
}

// TestOrdinaryGo is the same for a Go program, this one.
func TestOrdinaryGo(t *testing.T) {
	for _, filters := range variants(t) {
		if _, out, err := tell(t, "go", order{Filters: filters}); err != nil {
			t.Errorf("with %d filters: %v\n%s", len(filters), err, out)
		}
	}
}

func ordinaryGo() error {
	dir, err := os.MkdirTemp(os.Getenv("HOME"), "go")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 100000), 0o600); err != nil {
		return err
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	out, err := os.Create(name + "2")
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil { // copy_file_range
		return err
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { runtime.LockOSThread(); _ = make([]byte, 1<<20) })
	}
	wg.Wait()
	runtime.GC()
	echo, err := exec.Command("echo", "hi").Output()
	if err != nil || string(echo) != "hi\n" {
		return fmt.Errorf("echo: %q %v", echo, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := exec.CommandContext(ctx, "sleep", "100").Run(); err == nil {
		return errors.New("sleep was not killed")
	}
	return os.RemoveAll(dir)
}

const python = `
import asyncio, concurrent.futures, hashlib, json, multiprocessing, os, shutil, sqlite3, subprocess, tempfile, threading
home = os.environ["HOME"]
with tempfile.TemporaryDirectory(dir=home) as d:
    p = os.path.join(d, "f")
    open(p, "w").write("x" * 100000)
    shutil.copy(p, p + "2"); os.replace(p + "2", p + "3"); os.utime(p, (1, 1)); os.listdir(d)
    db = sqlite3.connect(os.path.join(d, "db")); db.execute("create table t (a)"); db.execute("insert into t values (1)"); db.commit()
t = [threading.Thread(target=hashlib.sha256, args=(b"x",)) for _ in range(8)]
[x.start() for x in t]; [x.join() for x in t]
assert subprocess.run(["true"]).returncode == 0
assert subprocess.check_output(["echo", "hi"]) == b"hi\n"
async def main():
    p = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await p.communicate(b"hello"); assert out == b"hello"
    await asyncio.sleep(0)
asyncio.run(main())
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
with concurrent.futures.ThreadPoolExecutor() as e: assert list(e.map(abs, [-3])) == [3]
assert len(os.urandom(8)) == 8 and os.cpu_count() and os.getloadavg
`

const node = `
const fs = require("fs"), os = require("os"), path = require("path"), cp = require("child_process"), assert = require("assert");
const { Worker } = require("worker_threads");
const d = fs.mkdtempSync(path.join(process.env.HOME, "n")), f = path.join(d, "f");
fs.writeFileSync(f, "x".repeat(100000)); fs.copyFileSync(f, f + "2"); fs.renameSync(f + "2", f + "3"); fs.readdirSync(d);
const w = fs.watch(d, () => {}); w.close(); os.cpus(); os.totalmem();
assert.equal(cp.execFileSync("echo", ["hi"]).toString(), "hi\n");
const c = cp.spawn("cat"); c.stdin.end("hello"); let got = ""; c.stdout.on("data", x => got += x);
c.on("close", async () => {
  assert.equal(got, "hello");
  await fs.promises.readFile(f);
  new Worker("require('worker_threads').parentPort.postMessage(1)", { eval: true }).on("message", m => { assert.equal(m, 1); console.log("done"); });
});
`

package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthos/berth/host/auditor"
	"github.com/berthos/berth/host/cli"
	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/host/monitor"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testenv"
	"github.com/berthos/berth/tools/testimage"
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == monitor.Arg {
		os.Exit(monitor.Main(monitor.Hooks{}))
	}
	if len(os.Args) > 1 && os.Args[1] == auditor.Arg {
		os.Exit(auditor.Main())
	}
	testscript.Main(m, map[string]func(){"berth": func() { os.Exit(berth()) }})
}

// berth is the program as the scripts run it.
func berth() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.Getwd()
	if err != nil {
		return cli.ExitFailed
	}
	return cli.Run(ctx, cli.World{Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Dir: dir, Version: "test"})
}

// TestScripts runs testdata/*.txtar: what users see, without a sandbox.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: world(t, ""), Cmds: commands})
}

// TestSandboxScripts runs testdata/native/*.txtar: the same with the real image
// on the native machine.
func TestSandboxScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/native", Setup: world(t, testimage.Dir(t, index.KindImage)), Cmds: commands})
}

// TestVMScripts runs testdata/qemu/*.txtar: the same in a VM.
func TestVMScripts(t *testing.T) {
	if _, err := qemu.Find(image.HostArch()); err != nil {
		testenv.Skip(t, err.Error())
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/qemu", Setup: world(t, testimage.Dir(t, index.KindImage)), Cmds: commands})
}

// world gives every script a home and an image of its own.
func world(t *testing.T, imageDir string) func(*testscript.Env) error {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return func(env *testscript.Env) error {
		for _, dir := range []string{"home", "run"} {
			if err := os.Mkdir(filepath.Join(env.WorkDir, dir), 0o700); err != nil {
				return err
			}
		}
		env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
		env.Setenv(runtimedir.EnvDir, filepath.Join(env.WorkDir, "run"))
		env.Setenv("ROOT", root)
		env.Setenv("GOCACHE", goEnv("GOCACHE", ".cache/go-build"))
		env.Setenv("GOMODCACHE", goEnv("GOMODCACHE", "go/pkg/mod"))
		if imageDir == "" {
			return nil
		}
		digest, err := os.ReadFile(filepath.Join(imageDir, index.DigestFile))
		if err != nil {
			return err
		}
		env.Setenv(image.EnvDir, imageDir)
		env.Setenv(image.EnvDigest, strings.Fields(string(digest))[0])
		return nil
	}
}

// goEnv keeps Go's caches in place although HOME moves.
func goEnv(name, inHome string) string {
	if dir := os.Getenv(name); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, inHome)
}

var commands = map[string]func(*testscript.TestScript, bool, []string){
	// await APP waits until a sandbox with APP answers.
	"await": func(ts *testscript.TestScript, neg bool, args []string) {
		root, err := runtimedir.Open(runtimedir.Search{Getenv: ts.Getenv})
		ts.Check(err)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		for tick := time.Tick(50 * time.Millisecond); ; {
			_, found, _, err := control.Find(ctx, root.Sandboxes())
			if err != nil {
				ts.Fatalf("cannot find app %s: %v", args[0], err)
			}
			if running(found, args[0]) {
				return
			}
			<-tick
		}
	},
	// kill-monitor NAME kills the process that holds a long-lived sandbox.
	"kill-monitor": func(ts *testscript.TestScript, neg bool, args []string) {
		root, err := runtimedir.Open(runtimedir.Search{Getenv: ts.Getenv})
		ts.Check(err)
		clients, found, _, err := control.Find(context.Background(), root.Sandboxes())
		ts.Check(err)
		for i, d := range found {
			if d.Name == args[0] {
				pid, err := clients[i].PID(context.Background())
				ts.Check(err)
				if pid != d.PID {
					ts.Fatalf("the monitor says it is pid %d, the kernel says %d", d.PID, pid)
				}
				// The monitor holds the lock of the name as long as it lives.
				lock, err := os.Open(filepath.Join(root.Path(), "os", args[0]+".lock"))
				ts.Check(err)
				defer lock.Close()
				ts.Check(syscall.Kill(pid, syscall.SIGKILL))
				ts.Check(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
				return
			}
		}
		ts.Fatalf("no sandbox %s", args[0])
	},
	// answers APP EXPORT WORD calls until the answer contains WORD.
	"answers": func(ts *testscript.TestScript, neg bool, args []string) {
		var out bytes.Buffer
		deadline := time.Now().Add(2 * time.Minute)
		for tick := time.Tick(50 * time.Millisecond); !strings.Contains(out.String(), args[2]); <-tick {
			if time.Now().After(deadline) {
				ts.Fatalf("%s does not answer %q but %q", args[0], args[2], out.String())
			}
			out.Reset()
			ts.Exec("berth", "rpc", args[0], "--export", args[1])
			out.WriteString(ts.ReadFile("stdout"))
		}
	},
}

func running(found []control.Description, app string) bool {
	for _, d := range found {
		for _, a := range d.Apps {
			if a.Name == app {
				return true
			}
		}
	}
	return false
}

// endless is a JSON string that never ends; read counts what was taken of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	if e.read == 0 {
		p[0] = '"'
	}
	e.read += int64(len(p))
	return len(p), nil
}

// TestEndlessInput: input on stdin is bounded before memory is taken for it.
func TestEndlessInput(t *testing.T) {
	var out, errs bytes.Buffer
	in := &endless{}
	code := cli.Run(t.Context(), cli.World{Args: []string{"rpc", "app", "--export", "x", "--input", "-"}, In: in, Out: &out, Err: &errs})
	if code != cli.ExitUsage || !strings.Contains(errs.String(), "more than 8 MiB") || !strings.Contains(errs.String(), "hint: ") {
		t.Errorf("exit code %d, stderr %q", code, &errs)
	}
	if in.read > 32<<20 {
		t.Errorf("%d bytes were read", in.read)
	}
}

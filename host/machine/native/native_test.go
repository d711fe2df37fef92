package native_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/image/imagetest"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/tools/testenv"
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// box is a running sandbox whose init does what it is told.
type box struct {
	machine.Instance
	t   testing.TB
	in  *bufio.Scanner
	dir *runtimedir.Dir
}

// start boots the test init with shares.
func start(t testing.TB, o native.Options, shares ...machine.Share) *box {
	t.Helper()
	img := testImage(t)
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := rt.New("test")
	if err != nil {
		t.Fatal(err)
	}
	o.Runtime = rt
	inst, err := native.New(o).Start(context.Background(), machine.Config{Image: img, Dir: dir, Shares: shares})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Instance: inst, t: t, in: bufio.NewScanner(inst.Link()), dir: dir}
	t.Cleanup(func() {
		inst.Kill()
		inst.Wait()
		if _, err := os.Stat(dir.Path); !os.IsNotExist(err) {
			t.Errorf("runtime folder is still there: %v", err)
		}
	})
	return b
}

// do has the init run one command.
func (b *box) do(cmd ...string) (out, errno string) {
	b.t.Helper()
	if err := b.send(b.Link(), cmd); err != nil {
		b.t.Fatal(err)
	}
	if !b.in.Scan() {
		b.t.Fatalf("no answer to %v: %v", cmd, b.in.Err())
	}
	var a struct{ Out, Errno string }
	if err := json.Unmarshal(b.in.Bytes(), &a); err != nil {
		b.t.Fatal(err)
	}
	return a.Out, a.Errno
}

func (b *box) send(c net.Conn, cmd []string) error { return json.NewEncoder(c).Encode(cmd) }

// want checks a command's output and errno.
func (b *box) want(out, errno string, cmd ...string) {
	b.t.Helper()
	gotOut, gotErrno := b.do(cmd...)
	if gotErrno != errno || errno == "" && gotOut != out {
		b.t.Errorf("%v: got %q, errno %q; want %q, errno %q", cmd, gotOut, gotErrno, out, errno)
	}
}

// envInit names the built testdata/init for a test that runs again as a user.
const envInit = "BERTH_TEST_INIT"

// both runs f as root and as an ordinary user.
func both(t *testing.T, f func(t *testing.T)) {
	if err := native.Check(); err != nil {
		testenv.Skip(t, err.Error())
	}
	machinetest.Both(t, []string{envInit + "=" + buildInit(t)}, f)
}

func buildInit(t testing.TB) string {
	if bin := os.Getenv(envInit); bin != "" {
		return bin
	}
	bin := filepath.Join(machinetest.Folder(t), "init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the test init: %v\n%s", err, out)
	}
	return bin
}

// testImage returns an image whose init is testdata/init.
func testImage(t testing.TB) *image.Image {
	t.Helper()
	dir := t.TempDir()
	root := rootFS(t)
	imagetest.Write(t, dir, root)
	img, err := image.Open(image.Location{Dir: dir, Source: "test"}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func rootFS(t testing.TB) fs.FS {
	t.Helper()
	raw, err := os.ReadFile(buildInit(t))
	if err != nil {
		t.Fatal(err)
	}
	m := fstest.MapFS{"sbin/init": {Data: raw, Mode: 0o755}, "etc/hello": {Data: []byte("hello\n"), Mode: 0o644}, "bin/link": {Data: []byte("../sbin/init"), Mode: fs.ModeSymlink | 0o777}}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp"} {
		m[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	}
	return m
}

func TestRootFileSystem(t *testing.T) {
	both(t, func(t *testing.T) {
		for _, unpack := range []bool{false, true} {
			t.Run(fmt.Sprintf("unpack=%v", unpack), func(t *testing.T) {
				b := start(t, native.Options{Unpack: unpack})
				b.want("1 0 0", "", "pid")
				copied := slices.ContainsFunc(b.Notes(), func(n string) bool { return strings.Contains(n, "copied into memory") })
				if copied != (unpack && os.Geteuid() == 0) {
					t.Errorf("notes: %q", b.Notes())
				}
				b.want("hello\n", "", "cat", "/etc/hello")
				b.want("100644 0 0", "", "stat", "/etc/hello")
				b.want("", "EROFS", "write", "/etc/new", "x")
				b.want("", "EROFS", "write", "/etc/hello", "x")
				b.want("", "", "write", "/tmp/new", "x") // control
				b.want("bin dev etc proc run sbin sys tmp", "", "ls", "/")
			})
		}
	})
}

func TestShares(t *testing.T) {
	both(t, func(t *testing.T) {
		rw, ro := t.TempDir(), t.TempDir()
		for _, dir := range []string{rw, ro} {
			if err := os.WriteFile(filepath.Join(dir, "old"), []byte("from the host"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := start(t, native.Options{}, machine.Share{Name: "rw", HostDir: rw}, machine.Share{Name: "ro", HostDir: ro, ReadOnly: true})
		id := "10000"
		if os.Geteuid() != 0 {
			id = "0"
		}
		b.want("100600 "+id+" "+id, "", "stat", "/run/berth/shares/rw/old")
		b.want("", "", "writeas", id, "/run/berth/shares/rw/new", "from the app")
		b.want("", "EROFS", "write", "/run/berth/shares/ro/new", "x")
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(rw, "new"), &st); err != nil || int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
			t.Errorf("file of the app on the host: %d:%d, %v; want our own ids", st.Uid, st.Gid, err)
		}
		if _, err := os.Stat(filepath.Join(ro, "new")); !os.IsNotExist(err) {
			t.Errorf("the read-only share was written to: %v", err)
		}
		if os.Geteuid() == 0 { // mounts are locked: not even the sandbox's root changes them
			b.want("", "EPERM", "remount-rw", "/run/berth/shares/ro")
			b.want("", "EROFS", "write", "/run/berth/shares/ro/new", "x")
			b.want("", "", "remount-rw", "/run/berth/shares/rw") // control
		}
	})
}

// A descriptor that whoever started berth forgot to close stays outside.
func TestForgottenDescriptor(t *testing.T) {
	both(t, func(t *testing.T) {
		forgotten, err := os.Open("/etc/passwd")
		if err != nil {
			t.Fatal(err)
		}
		defer forgotten.Close()
		high, err := unix.FcntlInt(forgotten.Fd(), unix.F_DUPFD, 100) // not close-on-exec
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(high)
		b := start(t, native.Options{})
		out, errno := b.do("ls", "/proc/self/fd")
		for fd := range strings.FieldsSeq(out) {
			to, _ := b.do("readlink", "/proc/self/fd/"+fd)
			if strings.Contains(to, "passwd") {
				t.Errorf("descriptor %s of the sandbox is %s", fd, to)
			}
		}
		if errno != "" || !strings.HasPrefix(out, "0 1 2 3") { // control: it has its own
			t.Errorf("descriptors %q, %s", out, errno)
		}
	})
}

// TestCoverOddNames: an app may have made a folder whose name is not UTF-8.
func TestCoverOddNames(t *testing.T) {
	both(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "share\xff")
		for _, sub := range []string{"hide\xff", "protect\xfe", "free\xfd"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, sub, "f"), []byte("f"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b := start(t, native.Options{}, machine.Share{Name: "s", HostDir: dir, Hide: []string{"hide\xff"}, Protect: []string{"protect\xfe"}})
		b.want("2 of 3", "", "covered", "/run/berth/shares/s") // a command is JSON and cannot name them
	})
}

package native_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/image/imagetest"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/machinetest"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/runtimedir"
)

// try starts a sandbox that must not start and returns why.
func try(t *testing.T, img *image.Image, shares ...machine.Share) error {
	t.Helper()
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := rt.New("test")
	if err != nil {
		t.Fatal(err)
	}
	inst, err := native.New(native.Options{Runtime: rt}).Start(context.Background(), machine.Config{Image: img, Dir: dir, Shares: shares})
	if err == nil {
		inst.Kill()
		inst.Wait()
		t.Fatal("it started")
	}
	if err := dir.Discard(); err != nil {
		t.Error(err)
	}
	if left := machinetest.Below(t, os.Getpid()); len(left) > 0 {
		machinetest.AwaitGone(t, left)
	}
	return err
}

func want(t *testing.T, err error, parts ...string) {
	t.Helper()
	all := err.Error() + "\nhint: " + hint.Of(err)
	for _, p := range parts {
		if !strings.Contains(all, p) {
			t.Errorf("%q does not contain %q", all, p)
		}
	}
}

func TestImageWithoutInit(t *testing.T) {
	both(t, func(t *testing.T) {
		m := fstest.MapFS{}
		for _, dir := range []string{"proc", "sys", "dev", "run", "tmp"} {
			m[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		}
		dir := t.TempDir()
		imagetest.Write(t, dir, m)
		img, err := image.Open(image.Location{Dir: dir}, image.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want(t, try(t, img), "cannot execute /sbin/init: no such file")
	})
}

func TestDamagedRoot(t *testing.T) {
	both(t, func(t *testing.T) {
		img := testImage(t)
		name := filepath.Join(img.Dir, "root.img")
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/2] ^= 1
		if err := os.WriteFile(name, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		want(t, try(t, img), "root.img: want sha256", "make image")
	})
}

func TestMissingShare(t *testing.T) {
	both(t, func(t *testing.T) {
		want(t, try(t, testImage(t), machine.Share{Name: "s", HostDir: "/no/such/folder"}), "/no/such/folder", "no such file")
	})
}

// envNested makes the test run on inside a user namespace that has been spoiled
// in the way that it names.
const envNested = "BERTH_TEST_NESTED"

func TestHostsThatForbid(t *testing.T) {
	cases := map[string][]string{
		"control":       nil,
		"no namespaces": {"user.max_user_namespaces", "sudo sysctl"},
		"masked /proc":  {"cannot mount /proc", "container"},
	}
	if how := os.Getenv(envNested); how != "" {
		spoil(t, how)
		if cases[how] == nil {
			start(t, native.Options{}).want("hello\n", "", "cat", "/etc/hello")
			return
		}
		want(t, try(t, testImage(t)), cases[how]...)
		return
	}
	for how := range cases {
		t.Run(how, func(t *testing.T) { nested(t, how) })
	}
}

func nested(t *testing.T, how string) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHostsThatForbid$", "-test.v")
	cmd.Env = append(os.Environ(), envNested+"="+how, envInit+"="+buildInit(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// spoil changes this process's own namespaces.
func spoil(t *testing.T, how string) {
	t.Helper()
	var err error
	switch how {
	case "no namespaces":
		err = os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	case "masked /proc":
		err = syscall.Mount("tmpfs", "/proc/sys", "tmpfs", syscall.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/berthos/berth/init/policy"
	"golang.org/x/sys/unix"
)

func TestJudge(t *testing.T) {
	about := trial{name: "x", layer: StepLandlock, want: unix.EACCES}
	for _, c := range []struct {
		answer error
		want   string
	}{
		{unix.EACCES, ""},
		{nil, "landlock does not hold"},
		{unix.ENOENT, "got no such file or directory"},
		{unix.EPERM, "got operation not permitted"},
	} {
		err := about.judge(c.answer)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.answer, err, c.want)
		}
	}
}

// TestComplete leaves out each step that a profile requires.
func TestComplete(t *testing.T) {
	for _, p := range []Profile{ProfileVM, ProfileNativeRoot, ProfileNativeUser} {
		e := &enforcer{plan: plan{Spec: Spec{Profile: p}, Done: Required(p)}}
		if err := e.complete(); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		for i, name := range Required(p) {
			e.Done = append(append([]string{}, Required(p)[:i]...), Required(p)[i+1:]...)
			if err := e.complete(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s without %s: %v", p, name, err)
			}
		}
	}
}

// TestRequired compares the names with the tables: whatever is done is demanded.
func TestRequired(t *testing.T) {
	var names []string
	for _, s := range append(append([]step{}, outside...), inside...) {
		names = append(names, s.name)
	}
	for _, p := range []Profile{ProfileVM, ProfileNativeRoot} {
		if !reflect.DeepEqual(Required(p), names) {
			t.Errorf("%s requires %v, the tables have %v", p, Required(p), names)
		}
	}
	if Required("other") != nil {
		t.Error("an unknown profile requires something")
	}
}

func paths(pairs ...string) (p policy.Policy) {
	for _, pair := range pairs {
		access, path, _ := strings.Cut(pair, ":")
		p.Paths = append(p.Paths, policy.Path{Path: path, Access: policy.Access(access)})
	}
	return p
}

func TestLay(t *testing.T) {
	ws := Share{Path: "/workspace", Source: "/s/ws", Aliases: []string{"/home/u/p"}}
	sub := Share{Path: "/workspace/sub", Source: "/s/sub", ReadOnly: true}
	for _, c := range []struct {
		name   string
		policy policy.Policy
		shares []Share
		want   string // target<-source/rel[!], ! if writable
		fault  string
	}{
		{"whole", paths("read:/workspace"), []Share{ws}, "/workspace<-/s/ws/. /home/u/p<-/s/ws/.", ""},
		{"part", paths("write:/workspace/a/b"), []Share{ws}, "/workspace/a/b<-/s/ws/a/b! /home/u/p/a/b<-/s/ws/a/b!", ""},
		{"nested shares", paths("write:/workspace"), []Share{sub, ws}, "/workspace<-/s/ws/.! /workspace/sub<-/s/sub/. /home/u/p<-/s/ws/.!", ""},
		{"inner share only", paths("read:/workspace/sub/x"), []Share{ws, sub}, "/workspace/sub/x<-/s/sub/x", ""},
		{"sum", paths("read:/workspace/a", "write:/workspace"), []Share{{Path: "/workspace", Source: "/s"}}, "/workspace<-/s/.! /workspace/a<-/s/a!", ""},
		{"twice", paths("read:/workspace", "write:/workspace/sub"), []Share{{Path: "/workspace/sub", Source: "/s"}}, "/workspace/sub<-/s/.!", ""},
		{"none", paths("read:/workspace"), nil, "", "no share covers it"},
		{"beside", paths("read:/workspace/b"), []Share{sub}, "", "no share covers it"},
		{"similar name", paths("read:/workspace/subway"), []Share{sub}, "", "no share covers it"},
		{"relative", paths("read:/workspace/../etc"), []Share{ws}, "", "not a path"},
		{"two at one place", paths("read:/workspace"), []Share{ws, {Path: "/workspace/x", Source: "/s/x", Aliases: []string{"/home/u/p"}}}, "", "two shares at"},
		{"access", paths("execute:/workspace"), []Share{ws}, "", "not a path and an access"},
	} {
		l, err := lay(c.policy, c.shares)
		var got []string
		for _, b := range l.binds {
			s := b.target + "<-" + b.source + "/" + b.rel
			if !b.readOnly {
				s += "!"
			}
			got = append(got, s)
		}
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want %q", c.name, err, c.fault)
			}
		} else if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.name, err, strings.Join(got, " "), c.want)
		}
	}
}

func TestShareCheck(t *testing.T) {
	good := Share{Path: "/workspace/x", Source: "/run/s", Aliases: []string{"/home/u", "/tmp/x", "/application"}}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Share{
		{Path: "/work", Source: "/s"}, {Path: "/workspace/", Source: "/s"}, {Path: "/workspace/../x", Source: "/s"},
		{Path: "/workspace", Source: "s"}, {Path: "/workspace", Source: "/"}, {Path: "/workspacex", Source: "/s"},
	} {
		if bad.check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for _, alias := range []string{"", "/", "x", "/app", "/app/x", "/dev/null", "/proc", "/sys/x", "/etc", "/run/x", "/workspace", "/workspace/y", "/context", "/scratch", "/tmp", "/home/../etc", "/home/", "/h\x00"} {
		if (Share{Path: "/workspace", Source: "/s", Aliases: []string{alias}}).check() == nil {
			t.Errorf("alias %q was accepted", alias)
		}
	}
}

// TestOpenRace opens a folder while somebody swaps it for a symlink that leads
// elsewhere. It must be either the folder or an error.
func TestOpenRace(t *testing.T) {
	share, secret, stop := swapping(t)
	defer stop()
	opened, refused, followed := 0, 0, 0
	for range 50000 {
		fd, err := open(share, "docs/inner")
		if errors.Is(err, unix.ELOOP) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Ino == secret {
			t.Fatalf("the symlink was followed (%v)", err)
		}
		opened++
		unix.Close(fd)
		// Control: an ordinary open follows it in the same race.
		if fd, err = unix.Openat(share, "docs/inner", unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			if unix.Fstat(fd, &st) == nil && st.Ino == secret {
				followed++
			}
			unix.Close(fd)
		}
	}
	t.Logf("opened %d, refused %d; an ordinary open followed the symlink %d times", opened, refused, followed)
	if opened == 0 || refused == 0 || followed == 0 {
		t.Error("there was no race to speak of")
	}
}

// swapping starts somebody who exchanges share/docs with a symlink to secret,
// until stop. It returns a handle of the share and the inode of secret/inner.
func swapping(t *testing.T) (share int, secret uint64, stop func()) {
	t.Helper()
	dir := t.TempDir()
	docs, evil := filepath.Join(dir, "share/docs"), filepath.Join(dir, "share/evil")
	var st unix.Stat_t
	err := errors.Join(
		os.MkdirAll(filepath.Join(docs, "inner"), 0o755),
		os.MkdirAll(filepath.Join(dir, "secret/inner"), 0o755),
		os.Symlink(filepath.Join(dir, "secret"), evil),
		unix.Stat(filepath.Join(dir, "secret/inner"), &st),
	)
	if err != nil {
		t.Fatal(err)
	}
	if share, err = unix.Open(filepath.Join(dir, "share"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, docs, unix.AT_FDCWD, evil, unix.RENAME_EXCHANGE)
			}
		}
	}()
	return share, st.Ino, func() { close(end); <-ended }
}

// TestFilterFile refuses what can not be a filter.
func TestFilterFile(t *testing.T) {
	if _, err := readFilter("../../../etc/none"); err == nil {
		t.Error("a missing filter was read")
	}
}

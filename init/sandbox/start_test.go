package sandbox_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// with returns a policy edited by change.
func (j job) with(t *testing.T, change func(*policy.Policy)) job {
	t.Helper()
	p, err := policy.Parse(j.Spec.Policy)
	if err != nil {
		t.Fatal(err)
	}
	change(&p)
	j.setPolicy(p)
	return j
}

func grants(pairs ...string) (paths []policy.Path) {
	for _, pair := range pairs {
		access, path, _ := strings.Cut(pair, ":")
		paths = append(paths, policy.Path{Path: path, Access: policy.Access(access)})
	}
	return paths
}

// TestStart shows what an app finds when everything is in place.
func TestStart(t *testing.T) {
	for _, profile := range profiles {
		t.Run(string(profile), func(t *testing.T) {
			b := newBase(t, profile, "")
			j := b.job(profile, []string{"-environ", "a b", "c"}, grants("write:/workspace")...).withCgroup(t)
			j.Extra = 3
			o := start(t, j)
			e := o.enforced()
			if e == nil || o.Code != 0 {
				t.Fatalf("%+v, code %d, %s", o.failed(), o.Code, o.Stderr)
			}
			if want := policy.Digest(j.Spec.Policy); e.PolicySHA256 != want {
				t.Errorf("policy sha256 %s, want %s", e.PolicySHA256, want)
			}
			for _, step := range sandbox.Required(profile) {
				if !slices.Contains(e.Steps, step) {
					t.Errorf("step %s is missing from %v", step, e.Steps)
				}
			}
			if weak := len(e.Weaker) > 0; weak != (profile == sandbox.ProfileNativeUser) {
				t.Errorf("weaker: %q", e.Weaker)
			}
			id := "uid 10000 gid 10000"
			if profile == sandbox.ProfileNativeUser {
				id = "uid 0 gid 0"
			}
			want := "fd 0 /dev/null\nfd 1 pipe\nfd 2 pipe\nfd 3 socket\nargs [a b c]\n" +
				"env [PATH=/app HOME=/scratch TMPDIR=/scratch LANG=C.UTF-8 BERTH_APP=attack BERTH_LISTEN_FD=3]\n" +
				"dir /workspace host attack " + id + "\n"
			if o.Stdout != want {
				t.Errorf("the app found\n%swant\n%s", o.Stdout, want)
			}
		})
	}
}

// TestConfined looks at every thread of an app.
func TestConfined(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		for _, c := range []struct {
			ablate []string
			want   bool
		}{{nil, true}, {[]string{"seccomp"}, false}, {[]string{"capabilities", "identity"}, false}} {
			j := b.job(profile, []string{"-confined"}).withCgroup(t)
			j.Spec.Ablate = c.ablate
			o := start(t, j)
			if got := o.Stdout == "confined: <nil>\n"; got != c.want {
				t.Errorf("%s without %v: %+v %s", profile, c.ablate, o.failed(), o.Stdout)
			}
		}
	}
}

// TestSupervisor looks at the supervisor when the enforcer is done: what an app
// could attack there.
func TestSupervisor(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		j := b.job(profile, []string{"-nothing"}, grants("read:/tmp/x", "write:/workspace")...).withCgroup(t)
		o := start(t, j)
		want := []string{"NoNewPrivs:\t1", "CapAmb:\t0000000000000000", "CapInh:\t0000000000000000"}
		if profile == sandbox.ProfileNativeUser {
			want = append(want, "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000")
		} else {
			want = append(want, "Uid:\t900\t900\t900\t900", "Gid:\t900\t900\t900\t900", "Groups:\t \n",
				"CapEff:\t0000000000000020", "CapPrm:\t0000000000000020", "CapBnd:\t0000000000000020") // CAP_KILL
		}
		for _, w := range want {
			if !strings.Contains(o.Parent, w) {
				t.Errorf("%s: the supervisor lacks %q:\n%s", profile, w, o.Parent)
			}
		}
		for line := range strings.Lines(o.Parent) {
			to, ok := strings.CutPrefix(strings.TrimSpace(line), "fd ")
			if ok && !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "anon_inode:") && to != "/dev/null" && to != "null" {
				t.Errorf("%s: the supervisor holds %s", profile, to)
			}
		}
	}
}

// TestSocket calls an app over its listening socket.
func TestSocket(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		j := b.job(profile, []string{"-serve"}).withCgroup(t)
		j.Call = "hello"
		if o := start(t, j); o.Answer != "hello" {
			t.Errorf("%s: %+v: answer %q, %s", profile, o.failed(), o.Answer, o.Stdout)
		}
	}
}

// TestEnd looks at how an app ends: by itself, by a signal passed on, by a call
// of another architecture, and with orphans around.
func TestEnd(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		for _, c := range []struct {
			arg, stop string
			code      int
		}{
			{"-nothing", "", 0},
			{"-hang", "waiting", 42},
			{"-orphans", "", 0},
			{"-x32", "", sandbox.ExitSignal + int(syscall.SIGSYS)},
		} {
			j := b.job(profile, []string{c.arg}).withCgroup(t)
			j.Stop = c.stop
			if o := start(t, j); o.Code != c.code {
				t.Errorf("%s %s: code %d, want %d (%+v, %s)", profile, c.arg, o.Code, c.code, o.failed(), o.Stdout)
			}
		}
		j := b.job(profile, nil)
		j.Plain = []string{"/app/attackapp", "-x32"}
		if o := start(t, j); o.Code != 0 {
			t.Errorf("control: %s: code %d\n%s", profile, o.Code, o.Stderr)
		}
	}
}

// TestInt80 makes a 32-bit call from a 64-bit program. A kernel without the
// entry ends the process by itself, also in the control.
func TestInt80(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		j := b.job(profile, nil)
		j.Plain = []string{"/app/attackapp", "-int80"}
		control := start(t, j)
		o := start(t, b.job(profile, []string{"-int80"}).withCgroup(t))
		switch {
		case control.Code == 0 && o.Code != sandbox.ExitSignal+int(syscall.SIGSYS):
			t.Errorf("%s: code %d, want SIGSYS; %+v %s", profile, o.Code, o.failed(), o.Stdout)
		case control.Code != 0 && (o.enforced() == nil || o.Code == 0):
			t.Errorf("%s: code %d, want it to end as without a sandbox; %+v", profile, o.Code, o.failed())
		case control.Code != 0:
			t.Logf("this kernel has no 32-bit entry: %s", strings.SplitN(control.Stderr, "\n", 2)[0])
		}
	}
}

// refusals are starts that must fail.
var refusals = []struct {
	name   string
	change func(*testing.T, *job)
	step   string
	reason string
}{
	{"policy", func(t *testing.T, j *job) { j.Spec.Policy = []byte(`{"schema":1}`) }, sandbox.StepSpec, "canonical"},
	{"profile", func(t *testing.T, j *job) { j.Spec.Profile = "native" }, sandbox.StepSpec, "not known"},
	{"ablation", func(t *testing.T, j *job) { j.Spec.Ablate = []string{"landlock"} }, sandbox.StepSpec, "leaves nothing out"},
	{"root", func(t *testing.T, j *job) { j.Spec.UID = 0; j.Spec.GID = 7 }, sandbox.StepSpec, "gid"},
	{"class", func(t *testing.T, j *job) { *j = j.with(t, func(p *policy.Policy) { p.Class = "none" }) }, sandbox.StepSpec, "seccomp profile"},
	{"code outside", func(t *testing.T, j *job) {
		*j = j.with(t, func(p *policy.Policy) { p.Argv = []string{"/workspace/x"} })
	}, sandbox.StepSpec, "/app"},
	{"alias", func(t *testing.T, j *job) { j.Spec.Shares[0].Aliases = []string{"/proc/1"} }, sandbox.StepSpec, "/proc/1"},
	{"alias of /", func(t *testing.T, j *job) { j.Spec.Shares[0].Aliases = []string{"/"} }, sandbox.StepSpec, "as well"},
	{"no filter", func(t *testing.T, j *job) { j.Break = "no-filter" }, sandbox.StepSpec, "seccomp filter"},
	{"no etc", func(t *testing.T, j *job) { j.Break = "no-etc" }, sandbox.StepMounts, "/etc"},
	{"no /dev/full", func(t *testing.T, j *job) { j.Break = "no-dev-full" }, sandbox.StepMounts, "/dev/full"},
	{"other /dev/null", func(t *testing.T, j *job) { j.Break = "wrong-dev-null" }, sandbox.StepMounts, "1:3"},
	{"missing folder", func(t *testing.T, j *job) { *j = j.granting(t, "read:/workspace/none") }, sandbox.StepMounts, "filesystem:read:/workspace/none: no such folder"},
	{"symlink", func(t *testing.T, j *job) { *j = j.granting(t, "read:/workspace/link") }, sandbox.StepMounts, "filesystem:read:/workspace/link: a folder of this path is a symlink"},
	{"symlink inside", func(t *testing.T, j *job) { *j = j.granting(t, "write:/workspace/inner") }, sandbox.StepMounts, "symlink"},
	{"below a symlink", func(t *testing.T, j *job) { *j = j.granting(t, "read:/workspace/link/ssl") }, sandbox.StepMounts, "symlink"},
	{"pipe", func(t *testing.T, j *job) { *j = j.granting(t, "read:/workspace/pipe") }, sandbox.StepMounts, "neither a folder nor a regular file"},
	{"write to /app", func(t *testing.T, j *job) { *j = j.granting(t, "write:/app") }, sandbox.StepMounts, "read-only"},
	{"context", func(t *testing.T, j *job) { *j = j.granting(t, "read:/context") }, sandbox.StepMounts, "not built"},
	{"elsewhere", func(t *testing.T, j *job) { *j = j.granting(t, "read:/etc") }, sandbox.StepMounts, "may only name"},
	{"no share", func(t *testing.T, j *job) { j.Spec.Shares = nil; *j = j.granting(t, "read:/workspace") }, sandbox.StepMounts, "no share covers it"},
	{"ABI", func(t *testing.T, j *job) { j.Spec.ABI = 99 }, sandbox.StepLandlock, "99 is needed"},
	{"torn filter", func(t *testing.T, j *job) { j.Break = "torn-filter" }, sandbox.StepSpec, "instructions of 8 bytes"},
	{"filter that filters nothing", func(t *testing.T, j *job) { j.Break = "open-filter" }, sandbox.StepCanaries, "seccomp does not hold"},
	{"own mounts", func(t *testing.T, j *job) { j.SkipNS = syscall.CLONE_NEWNS }, sandbox.StepSpec, "mnt namespace"},
	{"own pids", func(t *testing.T, j *job) { j.SkipNS = syscall.CLONE_NEWPID }, sandbox.StepSpec, "pid namespace"},
	{"own network", func(t *testing.T, j *job) { j.SkipNS = syscall.CLONE_NEWNET }, sandbox.StepSpec, "net namespace"},
	{"program", func(t *testing.T, j *job) { *j = j.with(t, func(p *policy.Policy) { p.Argv = []string{"/app/none"} }) }, sandbox.StepExec, "/app/none"},
}

// TestRefused starts what must not start. Nothing may be executed.
func TestRefused(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		os.MkdirAll(filepath.Join(b.share, "docs"), 0o755)
		os.Symlink("/etc", filepath.Join(b.share, "link"))
		os.Symlink("docs", filepath.Join(b.share, "inner"))
		if err := syscall.Mkfifo(filepath.Join(b.share, "pipe"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, c := range refusals {
			t.Run(string(profile)+"/"+c.name, func(t *testing.T) {
				j := b.job(profile, []string{"-environ"}).withCgroup(t)
				c.change(t, &j)
				o := start(t, j)
				f := o.failed()
				if f == nil || f.Step != c.step || !strings.Contains(f.Reason, c.reason) {
					t.Errorf("failed %+v, want step %s: …%s…", f, c.step, c.reason)
				}
				if want := sandbox.ExitFailed; o.Code != want && c.step != sandbox.StepExec {
					t.Errorf("exit code %d, want %d", o.Code, want)
				}
				if o.Stdout != "" {
					t.Errorf("something was executed: %s", o.Stdout)
				}
			})
		}
	}
}

func (j job) granting(t *testing.T, pairs ...string) job {
	t.Helper()
	return j.with(t, func(p *policy.Policy) { p.Paths = grants(pairs...) })
}

// TestNoGo ends FDGo without a word: the app must not run.
func TestNoGo(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		j := b.job(profile, []string{"-environ"}).withCgroup(t)
		j.NoGo = true
		o := start(t, j)
		if o.enforced() == nil || o.Code != sandbox.ExitNoGo || o.Stdout != "" {
			t.Errorf("%s: code %d, want %d; stdout %q", profile, o.Code, sandbox.ExitNoGo, o.Stdout)
		}
	}
}

// TestCgroupRequired starts as root without a cgroup, and as a user without.
func TestCgroupRequired(t *testing.T) {
	for _, profile := range profiles {
		o := start(t, newBase(t, profile, "").job(profile, []string{"-nothing"}))
		if profile != sandbox.ProfileNativeUser {
			if f := o.failed(); f == nil || f.Step != sandbox.StepCgroup {
				t.Errorf("%s: %+v, want a failure of step cgroup", profile, f)
			}
		} else if e := o.enforced(); e == nil || !strings.Contains(strings.Join(e.Weaker, "\n"), "no cgroup") {
			t.Errorf("%s: %+v, want it noted as weaker", profile, e)
		}
	}
}

// TestCgroupHolds lets an app take four times the memory of its cgroup, and, as
// control, without the step that puts it there. In cgroup v2 the supervisor
// ends with the app.
func TestCgroupHolds(t *testing.T) {
	profile := profiles[0]
	b := newBase(t, profile, "ablation")
	o := start(t, b.job(profile, []string{"-eat"}).withCgroup(t))
	if killed := o.Code == sandbox.ExitSignal+int(syscall.SIGKILL) || o.Code == -1; o.enforced() == nil || !killed || o.Stdout != "" {
		t.Errorf("code %d, want it killed: %+v %s", o.Code, o.failed(), o.Stdout)
	}
	j := b.job(profile, []string{"-eat"}).withCgroup(t)
	j.Spec.Ablate = []string{"cgroup"}
	if o := start(t, j); o.Code != 0 {
		t.Errorf("without cgroup: code %d: %+v %s", o.Code, o.failed(), o.Stdout)
	}
}

// TestForks lets an app start more processes than its policy allows, by cgroup
// or, for an ordinary user, by rlimit; and, as control, without either.
func TestForks(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "ablation")
		o := start(t, b.job(profile, []string{"-forks"}).withCgroup(t))
		if !strings.HasPrefix(o.Stdout, "refused after some: true") {
			t.Errorf("%s: %+v code %d %q", profile, o.failed(), o.Code, o.Stdout)
		}
		j := b.job(profile, []string{"-forks"}).withCgroup(t)
		j.Spec.Ablate = []string{"cgroup", "rlimits"}
		if o := start(t, j); o.Stdout != "not refused\n" {
			t.Errorf("%s without limits: %+v code %d %q %s", profile, o.failed(), o.Code, o.Stdout, o.Stderr)
		}
	}
}

// TestUsage calls agent-init as nobody should.
func TestUsage(t *testing.T) {
	b := newBase(t, profiles[0], "")
	for args, want := range map[string]int{"": sandbox.ExitFailed, "enforce": sandbox.ExitFailed, "help": sandbox.ExitUsage, "enforce now": sandbox.ExitUsage} {
		cmd := exec.Command(filepath.Join(b.dir, "sbin/agent-init"), strings.Fields(args)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("agent-init %s: code %d, want %d\n%s", args, code, want, out)
		}
	}
}

// TestAblationBuild shows that the test image's enforcer knows what it may leave
// out.
func TestAblationBuild(t *testing.T) {
	b := newBase(t, profiles[0], "ablation")
	for _, name := range []string{"mounts", "supervisor", "nothing", ""} {
		j := b.job(profiles[0], []string{"-nothing"})
		j.Spec.Ablate = []string{name}
		if f := start(t, j).failed(); f == nil || f.Step != sandbox.StepSpec {
			t.Errorf("ablation %q: %+v, want it refused", name, f)
		}
	}
	raw, err := json.Marshal(sandbox.Spec{})
	if err != nil || strings.Contains(string(raw), "ablate") {
		t.Errorf("an ordinary Spec mentions ablation: %s %v", raw, err)
	}
}

package sandbox_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// narrowed is a policy of three processes: all rights in the main one, one
// folder to read in "peek", nothing in "sum".
func (j job) narrowed(t *testing.T) job {
	t.Helper()
	return j.with(t, func(p *policy.Policy) {
		p.Connect, p.Exports = []uint16{8080}, []string{"all"}
		p.Invoke, p.Secrets = []policy.Invoke{{App: "notes"}, {App: "search"}}, []string{"TOKEN"}
		p.Rights = p.Rights.WithClass()
		p.Workers = []policy.Worker{
			{Name: "peek", Exports: []string{"peek"}, Rights: policy.Rights{Paths: grants("read:/workspace/docs"), Invoke: []policy.Invoke{{App: "search", Exports: []string{"find"}}}}.WithClass()},
			{Name: "sum", Exports: []string{"sum"}, Rights: policy.Rights{}.WithClass()},
		}
	})
}

// TestWorker starts each process of one policy: the main one may do what the
// narrowed ones may not.
func TestWorker(t *testing.T) {
	do := strings.Fields("-do read:/workspace/docs/f write:/workspace/docs/f stat:/workspace/other")
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		for _, name := range []string{"docs/f", "other"} {
			os.MkdirAll(filepath.Join(b.share, "docs"), 0o755)
			write(t, filepath.Join(b.share, name), []byte("text"))
			os.Chown(filepath.Join(b.share, name), b.uid, b.uid)
		}
		for _, c := range []struct {
			worker string
			invoke []string
			secret map[string]string
			want   string
		}{
			{"peek", []string{"search"}, nil, "text EROFS|EACCES ENOENT"},
			{"sum", nil, nil, "ENOENT ENOENT ENOENT"},
			{"", []string{"notes", "search"}, map[string]string{"TOKEN": "t"}, "text ok ok"},
		} {
			j := b.job(profile, do, grants("write:/workspace")...).withCgroup(t).narrowed(t)
			j.Spec.Worker, j.Spec.Invoke, j.Spec.Secrets = c.worker, c.invoke, c.secret
			o := start(t, j)
			if e := o.enforced(); e == nil || e.PolicySHA256 != policy.Digest(j.Spec.Policy) {
				t.Errorf("%s %q: %+v, want the digest of the whole policy; %+v", profile, c.worker, e, o.failed())
			}
			got := answers(o)
			for i, want := range strings.Fields(c.want) {
				if !slices.Contains(strings.Split(want, "|"), got[do[i+1]]) {
					t.Errorf("%s %q: %s: %q, want %s", profile, c.worker, do[i+1], got[do[i+1]], want)
				}
			}
		}
	}
}

// TestWorkerClass makes sockets in processes of one app: by its own system call
// profile each.
func TestWorkerClass(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		for worker, want := range map[string]string{"": "EACCES", "sum": "EPERM"} {
			j := b.job(profile, []string{"-net", "connect:9090"}, grants("write:/workspace")...).withCgroup(t).narrowed(t)
			j.Spec.Worker = worker
			if worker == "" {
				j.Spec.Invoke, j.Spec.Secrets = []string{"notes", "search"}, map[string]string{"TOKEN": ""}
			}
			if o := start(t, j); answers(o)["connect:9090"] != want {
				t.Errorf("%s %q: %q, want %s (%+v)", profile, worker, o.Stdout, want, o.failed())
			}
		}
	}
}

// TestInvoke looks at the sockets of the apps that a process may call: those,
// in the place that the environment says, and nothing else.
func TestInvoke(t *testing.T) {
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		os.Mkdir(filepath.Join(b.share, "docs"), 0o755)
		j := b.job(profile, []string{"-callees"}, grants("write:/workspace")...).withCgroup(t).narrowed(t)
		j.Spec.Invoke, j.Spec.Secrets, j.Extra = []string{"notes", "search"}, map[string]string{"TOKEN": ""}, 2
		want := "notes 4 true to notes <nil>\nsearch 5 true to search <nil>\n"
		if o := start(t, j); o.Stdout != want {
			t.Errorf("%s: got\n%swant\n%s%+v", profile, o.Stdout, want, o.failed())
		}
		j = j.with(t, func(p *policy.Policy) { p.Argv[1] = "-environ" })
		o := start(t, j)
		if want := "fd 0 /dev/null\nfd 1 pipe\nfd 2 pipe\nfd 3 socket\nfd 4 socket\nfd 5 socket\nargs"; !strings.HasPrefix(o.Stdout, want) {
			t.Errorf("%s: got\n%swant\n%s", profile, o.Stdout, want)
		}
		if want := "BERTH_LISTEN_FD=3 BERTH_EXPORTS=all BERTH_INVOKE=notes=4,search=5 TOKEN=]"; !strings.Contains(o.Stdout, want) {
			t.Errorf("%s: got\n%swant\n%s", profile, o.Stdout, want)
		}
		// Control: one that may call nobody has none. TestStart looks at the rest.
		j.Spec.Worker, j.Spec.Invoke, j.Spec.Secrets = "sum", nil, nil
		if o := start(t, j); !strings.Contains(o.Stdout, "fd 3 socket\nargs") || strings.Contains(o.Stdout, "BERTH_INVOKE") {
			t.Errorf("%s: %s", profile, o.Stdout)
		}
		j.Spec.Worker, j.Spec.Invoke = "peek", []string{"search"}
		if o := start(t, j); !strings.Contains(o.Stdout, "fd 4 socket\nargs") || !strings.Contains(o.Stdout, "BERTH_INVOKE=search=4]") {
			t.Errorf("%s: %s", profile, o.Stdout)
		}
	}
}

// TestSecrets gives an app a secret, and looks for it everywhere else.
func TestSecrets(t *testing.T) {
	const value = "correct horse=battery\nstaple \"\xf0\x9f\x90\x8e\""
	for _, profile := range profiles {
		b := newBase(t, profile, "")
		j := b.job(profile, []string{"-environ"}).withCgroup(t).with(t, func(p *policy.Policy) { p.Secrets = []string{"A_TOKEN", "TOKEN"} })
		j.Spec.Secrets = map[string]string{"A_TOKEN": "", "TOKEN": value}
		o := start(t, j)
		if want := "BERTH_LISTEN_FD=3 A_TOKEN= TOKEN=" + value + "]"; !strings.Contains(o.Stdout, want) {
			t.Errorf("%s: the app found %q, want …%q (%+v)", profile, o.Stdout, want, o.failed())
		}
		reports, err := json.Marshal(o.Reports)
		if err != nil {
			t.Fatal(err)
		}
		// The supervisor, and the enforcer that waits.
		if o.Parent == "" || !strings.Contains(o.Parent, `child cmdline "agent-init\x00enforce\x00"`) {
			t.Errorf("%s: looked at %q", profile, o.Parent)
		}
		for where, text := range map[string]string{"processes": o.Parent, "reports": string(reports), "log": o.Stderr} {
			if strings.Contains(text, "horse") {
				t.Errorf("%s: the secret is in the %s: %s", profile, where, text)
			}
		}
		// Of the largest that are allowed, all characters take room when encoded.
		j.Spec.Secrets["TOKEN"] = strings.Repeat("\x01", policy.MaxSecret)
		if o := start(t, j); !strings.Contains(o.Stdout, j.Spec.Secrets["TOKEN"]+"]") {
			t.Errorf("%s: a secret of %d bytes: %+v", profile, policy.MaxSecret, o.failed())
		}
	}
}

// TestGivenRefused hands over what the policy does not name, or less than it.
func TestGivenRefused(t *testing.T) {
	many := map[string]string{}
	for i := range 5 {
		many[fmt.Sprintf("S%d", i)] = strings.Repeat("x", policy.MaxSecret)
	}
	for _, c := range []struct {
		name   string
		change func(*policy.Policy)
		spec   func(*sandbox.Spec)
		reason string
	}{
		{"worker", nil, func(s *sandbox.Spec) { s.Worker = "none" }, `no process "none"`},
		{"main of an app of workers", func(p *policy.Policy) { p.Exports = nil }, func(s *sandbox.Spec) { s.Worker = "" }, "no process"},
		{"surplus secret", nil, func(s *sandbox.Spec) { s.Secrets = map[string]string{"TOKEN": "horse"} }, `secret "TOKEN"`},
		{"missing secret", func(p *policy.Policy) { p.Secrets = []string{"TOKEN"} }, func(s *sandbox.Spec) { s.Worker = "" }, `"TOKEN" was not given`},
		{"own variable", func(p *policy.Policy) { p.Secrets = []string{"PATH"} }, func(s *sandbox.Spec) { s.Worker, s.Secrets = "", map[string]string{"PATH": "horse"} }, "own variables"},
		{"own prefix", func(p *policy.Policy) { p.Secrets = []string{"BERTH_INVOKE"} }, func(s *sandbox.Spec) { s.Worker, s.Secrets = "", map[string]string{"BERTH_INVOKE": "horse"} }, "own variables"},
		{"NUL", func(p *policy.Policy) { p.Secrets = []string{"TOKEN"} }, func(s *sandbox.Spec) { s.Worker, s.Secrets = "", map[string]string{"TOKEN": "horse\x00"} }, "NUL"},
		{"long secret", func(p *policy.Policy) { p.Secrets = []string{"TOKEN"} }, func(s *sandbox.Spec) {
			s.Worker, s.Secrets = "", map[string]string{"TOKEN": strings.Repeat("horse", policy.MaxSecret)}
		}, "at most 65536"},
		{"long secrets", func(p *policy.Policy) { p.Secrets = []string{"S0", "S1", "S2", "S3", "S4"} }, func(s *sandbox.Spec) { s.Worker, s.Secrets = "", many }, "at most 262144"},
		{"surplus callee", nil, func(s *sandbox.Spec) { s.Invoke = []string{"notes"} }, "sockets for calls"},
		{"missing callee", func(p *policy.Policy) { p.Invoke = []policy.Invoke{{App: "notes"}} }, func(s *sandbox.Spec) { s.Worker = "" }, "sockets for calls"},
	} {
		for _, profile := range profiles {
			j := newBase(t, profile, "").job(profile, []string{"-environ"}).withCgroup(t).with(t, func(p *policy.Policy) {
				p.Exports = []string{"all"}
				p.Workers = []policy.Worker{{Name: "sum", Exports: []string{"sum"}, Rights: policy.Rights{}.WithClass()}}
				if c.change != nil {
					c.change(p)
				}
			})
			j.Spec.Worker = "sum"
			c.spec(&j.Spec)
			o := start(t, j)
			f := o.failed()
			if f == nil || f.Step != sandbox.StepSpec || !strings.Contains(f.Reason, c.reason) || strings.Contains(f.Reason, "horse") {
				t.Errorf("%s %s: %+v, want step spec: …%s…", profile, c.name, f, c.reason)
			}
			if o.Stdout != "" || o.Code != sandbox.ExitFailed {
				t.Errorf("%s %s: code %d, %q", profile, c.name, o.Code, o.Stdout)
			}
		}
	}
}

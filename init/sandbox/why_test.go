package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/compile"
	"github.com/berthos/berth/apps/explain"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
)

// TestWhyAgreesWithTheKernel starts the enforcer with random policies and tries
// random objects: what berth why says must be what happens.
func TestWhyAgreesWithTheKernel(t *testing.T) {
	policies := 200
	if os.Getenv(prebuilt) != "" {
		policies = 20 // an emulated machine
	}
	if n, err := strconv.Atoi(os.Getenv("BERTH_TEST_POLICIES")); err == nil {
		policies = n
	}
	for _, profile := range profiles {
		t.Run(string(profile), func(t *testing.T) {
			b := newWhyBase(t, profile)
			share := policies / len(profiles)
			var lanes sync.WaitGroup
			for lane := range 2 {
				lanes.Go(func() {
					for n := lane; n < share; n += 2 {
						b.compare(t, rand.New(rand.NewPCG(uint64(n), uint64(len(profile)))), n)
					}
				})
			}
			lanes.Wait()
			t.Logf("%d answers, %d of them allowed", b.asked, b.allowed)
			if b.allowed*10 < b.asked || b.allowed*10 > b.asked*9 {
				t.Error("the questions are too uniform to prove anything")
			}
		})
	}
}

// tried is what askapp prints of one try.
type tried struct {
	Errno unix.Errno
	Error string
}

// whyBase is a base whose share has a small tree, and what came of all.
type whyBase struct {
	base
	profile sandbox.Profile

	mu             sync.Mutex // guards what follows
	asked, allowed int
}

// folders are those of the share, and so what policies name.
var folders = []string{"a", "a/a", "a/b", "b", "b/a", "b/b", "a b"}

// links are the symbolic links of the share.
var links = map[string]string{
	"a/beside":     "../b/f",
	"a/inside":     "a/f",
	"b/folder":     "../a/b",
	"b/absolute":   "/etc/passwd",
	"b/workspace":  "/workspace/a/f",
	"a/b/outside":  "/run/canary/canary",
	"b/a/dangling": "nothing",
	"b/a/loop":     "loop",
}

func newWhyBase(t *testing.T, profile sandbox.Profile) *whyBase {
	b := &whyBase{base: newBase(t, profile, ""), profile: profile}
	raw, err := os.ReadFile(build(t, "../../tools/askapp", ""))
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	add := func(err error, rel string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, rel)
	}
	write(t, filepath.Join(b.dir, "code/askapp"), raw)
	if err := os.Chmod(filepath.Join(b.dir, "code/askapp"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(b.dir, "code/data"), nil)
	for _, dir := range folders {
		add(os.MkdirAll(filepath.Join(b.share, dir), 0o755), dir)
		add(os.WriteFile(filepath.Join(b.share, dir, "f"), []byte("x"), 0o644), dir+"/f")
	}
	add(os.WriteFile(filepath.Join(b.share, "a/x"), raw, 0o755), "a/x")
	for name, to := range links {
		add(os.Symlink(to, filepath.Join(b.share, name)), name)
	}
	for _, rel := range made {
		if err := os.Lchown(filepath.Join(b.share, rel), b.uid, b.uid); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// outside are objects that are no part of a share.
var outside = []string{
	"/", "/app", "/app/askapp", "/app/n", "/app/data", "/etc", "/etc/passwd", "/etc/n", "/etc/shadow", "/proc", "/proc/self/status", "/proc/self/n",
	"/proc/self/root/etc/passwd", "/proc/self/root/run/canary/canary", "/proc/self/cwd", "/proc/self/exe", "/proc/1/status", "/proc/1/root", "/proc/cpuinfo", "/proc/sys",
	"/tmp", "/tmp/n", "/tmp/a", "/tmp/a/n", "/tmp/a/b/n", "/scratch", "/scratch/n", "/dev", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
	"/dev/n", "/dev/shm", "/dev/shm/n", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/console", "/dev/kmsg", "/dev/mem", "/run", "/run/canary", "/run/canary/canary", "/run/berth", "/root", "/home", "/bin/sh", "/usr",
	"/sys", "/boot", "/lib", "/sbin/agent-init", "/context", "/workspace", "/workspace/..", "/workspace/../etc/passwd", "/app/../run/canary/canary", "/scratch/../proc/../etc",
	"f", "a/f", "../etc/passwd", "n",
}

// objects are all that is asked about, as the app names it.
func objects() (all []string) {
	all = slices.Clone(outside)
	for _, dir := range append([]string{""}, folders...) {
		at := path.Join("/workspace", dir)
		all = append(all, at, at+"/f", at+"/n", at+"/n/n", at+"/f/n", at+"x")
	}
	for name := range links {
		all = append(all, "/workspace/"+name)
	}
	slices.Sort(all)
	return append(all, "/workspace/b/folder/f", "/workspace/b/folder/n", "/workspace/a/x", "/host/project/a/f", "/host/project/n", "/host/project", "/host")
}

var askedPorts = []string{"80", "1024", "5432", "8080", "65535"}

// questions draws n of them.
func questions(r *rand.Rand, n int) (list []explain.Question) {
	all := objects()
	for range n {
		q := explain.Question{Op: explain.Op(pick(r, []string{"read", "read", "write", "write", "exec", "connect", "bind"}))}
		switch q.Op {
		case explain.Connect, explain.Bind:
			q.Object = pick(r, askedPorts)
		case explain.Exec:
			q.Object = pick(r, append(all, "/app/askapp", "/workspace/a/x", "/proc/self/exe"))
		default:
			q.Object = pick(r, all)
		}
		list = append(list, q)
	}
	return list
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// shares draws how the folder is shared.
func (b *whyBase) shares(r *rand.Rand) ([]sandbox.Share, []explain.Share) {
	whole := sandbox.Share{Path: "/workspace", Source: b.share, ReadOnly: r.IntN(4) == 0}
	if r.IntN(2) == 0 {
		whole.Aliases = []string{"/host/project"}
	}
	list := []sandbox.Share{whole}
	if r.IntN(4) == 0 {
		list = []sandbox.Share{
			{Path: "/workspace/a", Source: filepath.Join(b.share, "a"), ReadOnly: whole.ReadOnly},
			{Path: "/workspace/b", Source: filepath.Join(b.share, "b")},
		}
	}
	var seen []explain.Share
	for _, s := range list {
		seen = append(seen, explain.Share{Path: s.Path, Aliases: s.Aliases, ReadOnly: s.ReadOnly})
	}
	return list, seen
}

// capabilities draws what a manifest declares. With two shares only what they
// hold can be named.
func capabilities(r *rand.Rand, two bool) (list []string) {
	places := []string{"/workspace", "/workspace/a", "/workspace/a/a", "/workspace/a/b", "/workspace/b", "/workspace/b/a", "/workspace/a/f", "/workspace/b/b/f", "/tmp", "/tmp/a", "/tmp/a/b"}
	if !two {
		places = append(places, "/workspace/a b")
	}
	for range r.IntN(5) {
		list = append(list, "filesystem:"+pick(r, []string{"read", "write"})+":"+pick(r, places))
	}
	for range r.IntN(3) {
		list = append(list, "network:"+pick(r, []string{"connect", "bind"})+":"+pick(r, askedPorts))
	}
	if r.IntN(3) == 0 {
		list = append(list, "terminal:attach:*")
	}
	return list
}

// draw compiles a random manifest, and picks one of its processes.
func draw(t *testing.T, r *rand.Rand, two bool) (policy.Policy, string, string) {
	t.Helper()
	all := capabilities(r, two)
	narrow := slices.DeleteFunc(slices.Clone(all), func(string) bool { return r.IntN(2) == 0 })
	text := fmt.Sprintf("name: attack\nversion: 1.0.0\ncapabilities: [%s]\nexports: [{ name: wide }, { name: narrow, capabilities: [%s] }]\n", quoted(all), quoted(narrow))
	m, err := manifest.Parse("berth.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := compile.Compile(m, "sha256:"+strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	return p, pick(r, p.Processes()), text
}

func quoted(list []string) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%q, ", s)
	}
	return b.String()
}

// compare starts one policy and asks both.
func (b *whyBase) compare(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	shares, seen := b.shares(r)
	p, process, text := draw(t, r, len(shares) == 2)
	list := questions(r, 40)
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("q%d.json", n)
	write(t, filepath.Join(b.dir, "code", name), raw)
	p.Argv = []string{"/app/askapp", "/app/" + name}
	j := b.job(b.profile, nil)
	j.setPolicy(p)
	j.Spec.Shares, j.Spec.Worker = shares, process
	o := start(t, j.withCgroup(t))
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	if o.failed() != nil || o.Code != 0 || len(lines) != len(list) {
		t.Errorf("%s: %+v, code %d, %d answers\n%s%s", text, o.failed(), o.Code, len(lines), o.Stdout, o.Stderr)
		return
	}
	for i, q := range list {
		var got tried
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		b.judge(t, p, process, explain.Sandbox{Shares: seen, Readlink: b.readlink}, q, got, text)
	}
}

// judge compares one answer with what happened.
func (b *whyBase) judge(t *testing.T, p policy.Policy, process string, in explain.Sandbox, q explain.Question, got tried, text string) {
	t.Helper()
	a, err := explain.Why(p, process, in, q)
	if err != nil && !strings.Contains(err.Error(), "too many symbolic links") { // through which nobody gets
		t.Fatal(err)
	}
	b.mu.Lock()
	b.asked++
	if a.Allowed {
		b.allowed++
	}
	b.mu.Unlock()
	worked := got.Error == "" || q.Op == explain.Connect && got.Errno == unix.ECONNREFUSED
	if a.Allowed == worked || a.Allowed && b.other(q, a.Object, got.Errno) {
		return
	}
	t.Errorf("%s process %q shares %+v\n%s %s: the kernel says %q, why says %+v", text, process, in.Shares, q.Op, q.Object, got.Error, a)
}

// other reports whether what is allowed failed for a reason of its own.
func (b *whyBase) other(q explain.Question, object string, errno unix.Errno) bool {
	_, err := os.Lstat(filepath.Join(b.share, strings.TrimPrefix(object, "/workspace")))
	missing := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	if !policy.Below(object, "/workspace") {
		missing = path.Base(object) == "n" || policy.Below(object, "/scratch") || slices.Contains([]string{"/etc/shadow", "/proc/cpuinfo", "/proc/sys", "/tmp/a", "/tmp/a/b", "/tmp/a/a"}, object)
	}
	switch {
	case errno == unix.ENXIO: // a process without a terminal
		return object == "/dev/tty"
	case errno == unix.ENOENT || errno == unix.ENOTDIR:
		return missing || missingParent(object) || strings.Contains(q.Object, "/../") // what lies before the dots has to exist
	case q.Op == explain.Exec: // a folder, or a file without the right in its own mode
		return errno == unix.EACCES && object != "/app/askapp"
	}
	return false
}

func missingParent(object string) bool {
	return path.Base(path.Dir(object)) == "n" || path.Base(path.Dir(object)) == "f" || policy.Below(object, "/tmp/a")
}

func (b *whyBase) readlink(name string) string {
	if name == "/proc/self/exe" {
		return "/app/askapp"
	}
	if rel, ok := strings.CutPrefix(name, "/workspace/"); ok {
		return links[rel]
	}
	return ""
}

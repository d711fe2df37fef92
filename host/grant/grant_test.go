package grant

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/policy"
)

func sample() policy.Policy {
	return policy.Policy{
		Schema: policy.Schema, App: "notes", Version: "1.0.0", Code: "sha256:" + strings.Repeat("0", 64),
		Argv: []string{"/app/notes"},
		Rights: policy.Rights{
			Paths:  []policy.Path{{Path: "/tmp", Access: policy.Write}, {Path: "/workspace", Access: policy.Read}, {Path: "/workspace/out", Access: policy.Write}},
			Invoke: []policy.Invoke{{App: "search", Exports: []string{"find"}}},
		}.WithClass(),
		Limits:  policy.Limits{CPUMilli: 500, MemoryMB: 256, Pids: 64},
		Exports: []string{"add", "list"},
		Workers: []policy.Worker{{Name: "find", Exports: []string{"find", "grep"}, Rights: policy.Rights{
			Paths: []policy.Path{{Path: "/workspace", Access: policy.Read}}}.WithClass()}},
	}
}

// place gives the test a configuration of its own and returns an app's folder
// and its grant file.
func place(t *testing.T) (folder, file string) {
	t.Helper()
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return folder, filepath.Join(config, "berth/grants/notes.yml")
}

func resolve(t *testing.T, folder string, p policy.Policy) (policy.Policy, []string) {
	t.Helper()
	out, notes, err := Resolve(folder, p)
	if err != nil {
		t.Fatal(err)
	}
	return out, notes
}

func same(t *testing.T, a, b policy.Policy) bool {
	t.Helper()
	x, err := a.Encode()
	y, err2 := b.Encode()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return string(x) == string(y)
}

func TestFirstStartIsRecorded(t *testing.T) {
	folder, file := place(t)
	p, notes := resolve(t, folder, sample())
	if !same(t, p, sample()) || len(notes) != 1 || !strings.HasPrefix(notes[0], "recorded: ") || !strings.Contains(notes[0], file) {
		t.Errorf("%v", notes)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Fatal(info, err)
	}
	if _, notes = resolve(t, folder, sample()); len(notes) != 0 {
		t.Errorf("the second start says %q", notes)
	}
	// Other code and another version are no other grant.
	next := sample()
	next.Code, next.Version = "sha256:"+strings.Repeat("1", 64), "2.0.0"
	if out, _ := resolve(t, folder, next); out.Code != next.Code || out.Version != next.Version {
		t.Errorf("%+v", out)
	}
	k, err := Look(folder, "notes")
	if err != nil || !k.There || !same(t, k.Approved, Blank(sample())) {
		t.Errorf("%v %+v", err, k)
	}
}

// widenings has one change of each kind that allows more.
func widenings() map[string]func(*policy.Policy) {
	return map[string]func(*policy.Policy){
		"a path":               func(p *policy.Policy) { p.Paths[1].Access = policy.Write },
		"a port":               func(p *policy.Policy) { p.Connect = []uint16{443} },
		"a port to bind":       func(p *policy.Policy) { p.Bind = []uint16{8080} },
		"terminals":            func(p *policy.Policy) { p.Terminal = true },
		"a call":               func(p *policy.Policy) { p.Invoke[0].Exports = []string{"delete", "find"} },
		"all calls":            func(p *policy.Policy) { p.Invoke[0].Exports = nil },
		"a secret":             func(p *policy.Policy) { p.Secrets = []string{"TOKEN"} },
		"a host-executed name": func(p *policy.Policy) { p.HostExecuted = []string{".git/config"} },
		"memory":               func(p *policy.Policy) { p.Limits.MemoryMB++ },
		"a worker's path":      func(p *policy.Policy) { p.Workers[0].Paths = append(p.Workers[0].Paths, p.Paths[2]) },
		"no worker any more":   func(p *policy.Policy) { p.Workers, p.Exports = nil, []string{"add", "find", "grep", "list"} },
	}
}

func TestWideningDoesNotStart(t *testing.T) {
	for name, widen := range widenings() {
		t.Run(name, func(t *testing.T) {
			folder, file := place(t)
			resolve(t, folder, sample())
			before, _ := os.ReadFile(file)
			wide := sample()
			widen(&wide)
			_, _, err := Resolve(folder, wide)
			if err == nil || !strings.Contains(err.Error(), "\n  + may") || !strings.Contains(hint.Of(err), "berth approve "+folder) {
				t.Fatalf("%v, hint %q", err, hint.Of(err))
			}
			if after, _ := os.ReadFile(file); string(after) != string(before) {
				t.Error("the refusal changed the record")
			}
			// The control: it starts once approved, and the former, narrower one too.
			if _, err := Approve(folder, wide, Narrowing{}); err != nil {
				t.Fatal(err)
			}
			resolve(t, folder, wide)
			resolve(t, folder, sample())
			if after, _ := os.ReadFile(file); string(after) == string(before) {
				t.Error("the approval was not recorded")
			}
		})
	}
}

func TestHostExecutedAlwaysNeedsApproval(t *testing.T) {
	folder, file := place(t)
	p := sample()
	p.HostExecuted = []string{".git/config"}
	_, _, err := Resolve(folder, p)
	if err == nil || !strings.Contains(err.Error(), ".git/config") || !strings.Contains(hint.Of(err), "berth approve") {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("it was recorded")
	}
	if _, err := Approve(folder, p, Narrowing{}); err != nil {
		t.Fatal(err)
	}
	resolve(t, folder, p)
}

// TestGrantsAreOfOneFolder: another app of the same name is another app.
func TestGrantsAreOfOneFolder(t *testing.T) {
	folder, _ := place(t)
	other := t.TempDir()
	wide := sample()
	wide.Terminal = true
	resolve(t, folder, sample())
	if _, notes := resolve(t, other, wide); len(notes) != 1 {
		t.Errorf("%q", notes)
	}
	if _, _, err := Resolve(folder, wide); err == nil {
		t.Error("one folder's grant held for another's")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Resolve(link, wide); err == nil {
		t.Error("a link to the folder is another folder")
	}
}

func TestNarrowedByHand(t *testing.T) {
	folder, file := place(t)
	resolve(t, folder, sample())
	raw, _ := os.ReadFile(file)
	narrowed := strings.Replace(string(raw), "    approved_sha256", "    read_only: true\n    exports: [list, grep]\n    paths: [/workspace/out, /workspace/docs]\n    approved_sha256", 1)
	if err := os.WriteFile(file, []byte(narrowed), 0o600); err != nil {
		t.Fatal(err)
	}
	p, notes := resolve(t, folder, sample())
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	want := []policy.Path{{Path: "/tmp", Access: policy.Write}, {Path: "/workspace/docs", Access: policy.Read}, {Path: "/workspace/out", Access: policy.Read}}
	if len(p.Paths) != 3 || p.Paths[0] != want[0] || p.Paths[1] != want[1] || p.Paths[2] != want[2] {
		t.Errorf("paths %v", p.Paths)
	}
	if strings.Join(p.Exports, " ") != "list" || len(p.Workers) != 1 || p.Workers[0].Name != "grep" {
		t.Errorf("exports %v, workers %+v", p.Exports, p.Workers)
	}
	if len(notes) == 0 || !strings.Contains(strings.Join(notes, "\n"), "narrowed by "+file) {
		t.Errorf("notes %q", notes)
	}
	// What the narrowing takes away anyway widens nothing.
	wide := sample()
	wide.Paths[1].Access = policy.Write
	resolve(t, folder, wide)
	// Another entry of the file survives an approval of this one and the other way round.
	if _, err := Approve(t.TempDir(), sample(), Narrowing{}); err != nil {
		t.Fatal(err)
	}
	if k, err := Look(folder, "notes"); err != nil || !k.Narrowing.ReadOnly {
		t.Errorf("%v %+v", err, k)
	}
}

func TestHostileFiles(t *testing.T) {
	folder, file := place(t)
	resolve(t, folder, sample())
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(from, to string) func() error {
		return func() error { return os.WriteFile(file, []byte(strings.Replace(string(good), from, to, 1)), 0o600) }
	}
	elsewhere := filepath.Join(t.TempDir(), "other.yml")
	dir := filepath.Dir(file)
	for name, c := range map[string]struct {
		spoil func() error
		want  string
	}{
		"a symlink":                     {func() error { return errors.Join(os.WriteFile(elsewhere, good, 0o600), os.Symlink(elsewhere, file)) }, "symbolic link"},
		"others may write":              {func() error { return errors.Join(os.WriteFile(file, good, 0o600), os.Chmod(file, 0o622)) }, "other users may write"},
		"a fifo":                        {func() error { return unix.Mkfifo(file, 0o600) }, "not what berth made"},
		"a folder":                      {func() error { return os.Mkdir(file, 0o700) }, "not what berth made"},
		"empty":                         {func() error { return os.WriteFile(file, nil, 0o600) }, "empty"},
		"torn":                          {func() error { return os.WriteFile(file, good[:len(good)/2], 0o600) }, ""},
		"changed by hand":               {replaced("/workspace/out", "/workspace/OUT"), "changed by hand"},
		"another app's":                 {replaced("app: 'notes'", "app: 'other'"), `of app "other"`},
		"an unknown key":                {replaced("    approved_sha256", "    write_only: true\n    approved_sha256"), "unknown key"},
		"hosts":                         {replaced("    approved_sha256", "    hosts: []\n    approved_sha256"), "network:host"},
		"too much":                      {func() error { return os.WriteFile(file, []byte(strings.Repeat("#\n", 200<<10)), 0o600) }, "are read"},
		"the folder is writable by all": {func() error { return errors.Join(os.WriteFile(file, good, 0o600), os.Chmod(dir, 0o777)) }, "other users may write"},
	} {
		t.Run(name, func(t *testing.T) {
			os.RemoveAll(file)
			if err := c.spoil(); err != nil {
				t.Fatal(err)
			}
			_, _, err := Resolve(folder, sample())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := Look(folder, "notes"); err == nil {
				t.Error("Look believed it")
			}
			os.Chmod(dir, 0o700)
		})
	}
	if os.Geteuid() == 0 {
		os.RemoveAll(file)
		if err := errors.Join(os.WriteFile(file, good, 0o600), os.Chown(file, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Resolve(folder, sample()); err == nil || !strings.Contains(err.Error(), "uid 12345") {
			t.Error(err)
		}
	}
	// The control: the same bytes, in a file as it should be.
	os.RemoveAll(file)
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	resolve(t, folder, sample())
}

// TestEveryFaultIsNamed: a file with several faults is not read one at a time.
func TestEveryFaultIsNamed(t *testing.T) {
	_, err := manifest.ParseGrants("g.yml", []byte("schema_version: 1\napp: Notes\nfolders:\n  - folder: a/../b\n    read_only: maybe\n    exports: [1, a, a]\n    paths: [/etc, /workspace/]\n    folders: x\n"))
	var faults manifest.Errors
	if !errors.As(err, &faults) || len(faults) != 10 {
		t.Errorf("%d faults: %v", len(faults), err)
	}
}

func TestHostileFolders(t *testing.T) {
	folder, _ := place(t)
	for _, name := range []string{"it's", `a "b" \ c`, "a: b # c", "- x", "über", "%s{}[]&*!|>", " x", "~"} {
		dir := filepath.Join(folder, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		resolve(t, dir, sample())
		wide := sample()
		wide.Terminal = true
		if _, _, err := Resolve(dir, wide); err == nil {
			t.Errorf("%q: its grant was not found again", name)
		}
	}
	for _, name := range []string{"a\nb", "a\x1b[31m", "a\xff", "a\u202eb"} {
		dir := filepath.Join(folder, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Resolve(dir, sample()); err == nil || !strings.Contains(hint.Of(err), "must print") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, app := range []string{"../x", "a/b", "", ".lock", "a\x00"} {
		p := sample()
		p.App = app
		if _, _, err := Resolve(folder, p); err == nil {
			t.Errorf("app %q was recorded", app)
		}
	}
}

// TestConcurrentWriters: no approval is lost, and no reader sees half a file.
func TestConcurrentWriters(t *testing.T) {
	folder, _ := place(t)
	var all sync.WaitGroup
	for i := range 16 {
		dir := filepath.Join(folder, strings.Repeat("x", i+1))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if _, err := Approve(dir, sample(), Narrowing{}); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := Look(dir, "notes"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 16 {
		if k, err := Look(filepath.Join(folder, strings.Repeat("x", i+1)), "notes"); err != nil || !k.There {
			t.Errorf("%d: %v, there %v", i, err, k.There)
		}
	}
}

// TestNoRoom: a record that cannot be written stops the start, and leaves the
// former one whole. The limit is of a process, so a child has it.
func TestNoRoom(t *testing.T) {
	const role = "BERTH_TEST_NO_ROOM"
	if folders := os.Getenv(role); folders != "" {
		full := unix.Rlimit{Cur: 16, Max: 16}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &full); err != nil {
			t.Fatal(err)
		}
		known, fresh, _ := strings.Cut(folders, ":")
		_, _, first := Resolve(fresh, sample())
		_, second := Approve(known, sample(), Narrowing{ReadOnly: true})
		if !errors.Is(first, unix.EFBIG) || !errors.Is(second, unix.EFBIG) || hint.Of(first) == "" {
			t.Errorf("%v, %v", first, second)
		}
		return
	}
	folder, file := place(t)
	resolve(t, folder, sample())
	before, _ := os.ReadFile(file)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoRoom$")
	child.Env = append(os.Environ(), role+"="+folder+":"+t.TempDir())
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	after, _ := os.ReadFile(file)
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".new-*"))
	if string(after) != string(before) || len(left) > 0 {
		t.Errorf("the file changed, or %v is left", left)
	}
	resolve(t, folder, sample())
}

func TestNoHome(t *testing.T) {
	folder, _ := place(t)
	t.Setenv("XDG_CONFIG_HOME", "relative")
	t.Setenv("HOME", "")
	if _, _, err := Resolve(folder, sample()); err == nil || hint.Of(err) == "" {
		t.Error(err)
	}
	target := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if err := os.Symlink(target, filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "berth")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Resolve(folder, sample()); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Error(err)
	}
}

// TestReadOnlyHome: where nothing can be kept, a first start happens and says so;
// what needs approval does not.
func TestReadOnlyHome(t *testing.T) {
	folder, _ := place(t)
	t.Setenv("XDG_CONFIG_HOME", "/sys/berth-test") // where not even root makes folders
	p, notes, err := Resolve(folder, sample())
	if err != nil || !same(t, p, sample()) || len(notes) != 1 || !strings.HasPrefix(notes[0], "not recorded: ") {
		t.Errorf("%v %q", err, notes)
	}
	special := sample()
	special.HostExecuted = []string{".envrc"}
	if _, _, err := Resolve(folder, special); err == nil {
		t.Error("a name that hosts execute was granted")
	}
	if _, err := Approve(folder, sample(), Narrowing{}); err == nil || hint.Of(err) == "" {
		t.Errorf("approved: %v", err)
	}
	if k, err := Look(folder, "notes"); err != nil || k.There {
		t.Errorf("%v %+v", err, k)
	}
}

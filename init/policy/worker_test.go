package policy

import (
	"slices"
	"strings"
	"testing"
)

// full has one of everything, and two workers.
func full() Policy {
	p := sample()
	p.Rights = Rights{
		Paths:   []Path{{"/tmp", Write}, {"/workspace", Read}, {"/workspace/out", Write}},
		Connect: []uint16{443, 5432}, Bind: []uint16{8090},
		Terminal:     true,
		Invoke:       []Invoke{{App: "notes", Exports: []string{"add", "list"}}, {App: "search", Exports: []string{}}},
		Secrets:      []string{"API_TOKEN", "OTHER"},
		HostExecuted: []string{".envrc", ".git/config"},
	}.WithClass()
	p.Exports = []string{"everything"}
	p.Workers = []Worker{
		{Name: "find", Exports: []string{"find", "grep"}, Rights: Rights{
			Paths: []Path{{"/workspace", Read}}, Invoke: []Invoke{{App: "notes", Exports: []string{"list"}}}}.WithClass()},
		{Name: "nothing", Exports: []string{"nothing"}, Rights: Rights{}.WithClass()},
	}
	return p
}

func TestProcesses(t *testing.T) {
	p := full()
	if got := strings.Join(p.Processes(), ","); got != ",find,nothing" {
		t.Errorf("processes %q", got)
	}
	p.Exports = nil
	if got := strings.Join(p.Processes(), ","); got != "find,nothing" {
		t.Errorf("with a worker for each export: %q", got)
	}
	if _, err := p.For(Main); err == nil {
		t.Error("a main process that nothing starts has a policy")
	}
	p.Workers = nil
	if got := p.Processes(); !slices.Equal(got, []string{Main}) {
		t.Errorf("an app without exports: %q", got)
	}
	if Instance("notes", Main) != "notes" || Instance("notes", "find") != "notes.find" {
		t.Error("instance")
	}
}

func TestServes(t *testing.T) {
	p := full()
	for export, want := range map[string]string{"everything": Main, "find": "find", "grep": "find", "nothing": "nothing"} {
		if got, ok := p.Serves(export); !ok || got != want {
			t.Errorf("%s is served by %q, %v", export, got, ok)
		}
	}
	if _, ok := p.Serves("other"); ok {
		t.Error("an export that does not exist is served")
	}
	if got := strings.Join(p.AllExports(), " "); got != "everything find grep nothing" {
		t.Errorf("exports %q", got)
	}
}

// TestFor: a worker's policy has its rights in place of the app's, all of them.
func TestFor(t *testing.T) {
	p := full()
	main, err := p.For(Main)
	if err != nil || main.Beyond(p.Rights) != "" || p.Beyond(main.Rights) != "" || len(main.Workers) != 0 || main.Limits != p.Limits {
		t.Errorf("main: %v %+v", err, main)
	}
	w, err := p.For("find")
	if err != nil || w.Check() != nil {
		t.Fatal(err, w.Check())
	}
	if len(w.Paths) != 1 || len(w.Connect)+len(w.Bind)+len(w.Secrets)+len(w.HostExecuted) != 0 || w.Terminal || w.Class != ClassBase ||
		w.Invokes("notes", "add") || w.Invokes("search", "x") || !w.Invokes("notes", "list") || strings.Join(w.Exports, " ") != "find grep" {
		t.Errorf("worker: %+v", w)
	}
	if _, err := p.For("other"); err == nil {
		t.Error("a worker that does not exist has a policy")
	}
	if len(p.Workers) != 2 {
		t.Error("For changed the policy")
	}
}

// beyonds has, for each kind of right, one more than full has.
func beyonds() map[string]func(*Rights) {
	return map[string]func(*Rights){
		"write of /workspace":                      func(r *Rights) { r.Paths = []Path{{"/workspace", Write}} },
		"read of /context":                         func(r *Rights) { r.Paths = []Path{{"/context", Read}} },
		"connecting to port 80":                    func(r *Rights) { r.Connect = []uint16{80, 443} },
		"binding port 443":                         func(r *Rights) { r.Bind = []uint16{443} },
		"terminals":                                func(r *Rights) { r.Terminal = true },
		"calling app notes":                        func(r *Rights) { r.Invoke = []Invoke{{App: "notes", Exports: []string{}}} },
		"calling delete of app notes":              func(r *Rights) { r.Invoke = []Invoke{{App: "notes", Exports: []string{"add", "delete"}}} },
		"calling app other":                        func(r *Rights) { r.Invoke = []Invoke{{App: "other"}} },
		"the secret THIRD":                         func(r *Rights) { r.Secrets = []string{"OTHER", "THIRD"} },
		"writing .vscode, which hosts execute":     func(r *Rights) { r.HostExecuted = []string{".envrc", ".vscode"} },
		"writing .git/Config, which hosts execute": func(r *Rights) { r.HostExecuted = []string{".git/Config"} },
	}
}

func TestBeyond(t *testing.T) {
	for want, add := range beyonds() {
		wide := full().Rights
		if want == "terminals" {
			wide.Terminal = false
		}
		var r Rights
		add(&r)
		if got := r.Beyond(wide); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		// In a worker it is refused for that.
		p := full()
		p.Terminal = wide.Terminal
		p.Rights = p.WithClass()
		p.Workers[1].Rights = r.WithClass()
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s in a worker: %v", want, err)
		}
	}
	for _, w := range append(full().Workers, Worker{Rights: full().Rights}, Worker{Rights: Rights{Invoke: []Invoke{{App: "search", Exports: []string{"any"}}}}}) {
		if more := w.Beyond(full().Rights); more != "" {
			t.Errorf("%s is beyond: %s", w.Name, more)
		}
	}
}

// TestCheckRefuses: what the compiler never makes, the enforcer never believes.
func TestCheckRefuses(t *testing.T) {
	if err := full().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Policy){
		"connect port 0":              func(p *Policy) { p.Connect[0] = 0 },
		"connect ports repeated":      func(p *Policy) { p.Connect[1] = p.Connect[0] },
		"bind ports repeated":         func(p *Policy) { p.Bind = []uint16{80, 80} },
		"base with network":           func(p *Policy) { p.Class = ClassBase },
		"network without terminal":    func(p *Policy) { p.Class = ClassNetwork },
		"a class that does not exist": func(p *Policy) { p.Class = "everything" },
		"app to call unnamed":         func(p *Policy) { p.Invoke[0].App = "" },
		"app to call with a dot":      func(p *Policy) { p.Invoke[0].App = "a.b" },
		"app to call with a line":     func(p *Policy) { p.Invoke[0].App = "a\nb" },
		"apps to call twice":          func(p *Policy) { p.Invoke[1].App = "notes" },
		"apps to call unsorted":       func(p *Policy) { slices.Reverse(p.Invoke) },
		"exports to call unsorted":    func(p *Policy) { slices.Reverse(p.Invoke[0].Exports) },
		"exports to call unnamed":     func(p *Policy) { p.Invoke[0].Exports[0] = "" },
		"secrets unsorted":            func(p *Policy) { slices.Reverse(p.Secrets) },
		"secret repeated":             func(p *Policy) { p.Secrets[1] = p.Secrets[0] },
		"secret with a value":         func(p *Policy) { p.Secrets[0] = "A=b" },
		"secret unnamed":              func(p *Policy) { p.Secrets[0] = "" },
		"secret with NUL":             func(p *Policy) { p.Secrets[0] = "A\x00" },
		"host-executed unsorted":      func(p *Policy) { slices.Reverse(p.HostExecuted) },
		"host-executed absolute":      func(p *Policy) { p.HostExecuted = []string{"/etc"} },
		"host-executed above":         func(p *Policy) { p.HostExecuted = []string{"../x"} },
		"host-executed parent":        func(p *Policy) { p.HostExecuted = []string{".."} },
		"host-executed everything":    func(p *Policy) { p.HostExecuted = []string{"."} },
		"host-executed unclean":       func(p *Policy) { p.HostExecuted = []string{"a//b"} },
		"path with NUL":               func(p *Policy) { p.Paths[0].Path = "/tmp\x00" },
		"exports unsorted":            func(p *Policy) { p.Exports = []string{"b", "a"} },
		"export twice":                func(p *Policy) { p.Exports = []string{"a", "a"} },
		"export unnamed":              func(p *Policy) { p.Exports = []string{"", "a"} },
		"export like an instance":     func(p *Policy) { p.Exports = []string{"a.b"} },
		"export with two processes":   func(p *Policy) { p.Exports = []string{"find"} },
		"worker without exports":      func(p *Policy) { p.Workers[0].Exports = nil },
		"worker's exports unsorted":   func(p *Policy) { slices.Reverse(p.Workers[0].Exports) },
		"worker misnamed":             func(p *Policy) { p.Workers[0].Name = "grep" },
		"worker unnamed":              func(p *Policy) { p.Workers[0].Name, p.Workers[0].Exports = "", []string{""} },
		"worker like an instance":     func(p *Policy) { p.Workers[0].Name, p.Workers[0].Exports = "a.b", []string{"a.b"} },
		"workers unsorted":            func(p *Policy) { slices.Reverse(p.Workers) },
		"worker twice":                func(p *Policy) { p.Workers[1] = p.Workers[0] },
		"worker's class":              func(p *Policy) { p.Workers[1].Class = ClassNetwork },
		"worker's path":               func(p *Policy) { p.Workers[0].Paths[0].Path = "/workspace/.." },
		"app's name with a line":      func(p *Policy) { p.App = "a\nb" },
	} {
		p := full()
		spoil(&p)
		if err := p.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestEqualRightsHaveEqualBytes: nil and empty are the same.
func TestEqualRightsHaveEqualBytes(t *testing.T) {
	a, b := full(), full()
	b.Workers[1].Rights = Rights{Class: ClassBase, Paths: []Path{}, Connect: []uint16{}, Bind: []uint16{}, Invoke: []Invoke{}, Secrets: []string{}, HostExecuted: []string{}}
	a.Invoke[1].Exports = nil
	x, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if y, err := b.Encode(); err != nil || string(x) != string(y) || strings.Contains(string(x), "null") {
		t.Errorf("%v\n%s\n%s", err, x, y)
	}
	if a.Invoke[1].Exports != nil {
		t.Error("Encode changed its receiver")
	}
}

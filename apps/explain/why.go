package explain

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/init/policy"
)

// Op is what a question is about.
type Op string

// The operations.
const (
	Read    Op = "read"
	Write   Op = "write"
	Exec    Op = "exec"
	Connect Op = "connect"
	Bind    Op = "bind"
	Call    Op = "call"
)

// Ops lists the operations.
func Ops() []Op { return []Op{Read, Write, Connect, Bind, Exec, Call} }

// Question asks whether a process may do something.
type Question struct {
	Op     Op
	Object string // a path, a port or address, or APP.EXPORT
}

// Answer says whether it may, and what decides.
type Answer struct {
	Allowed bool   `json:"allowed"`
	Object  string `json:"object"`           // in its canonical form
	By      string `json:"by"`               // the layer that decides
	Line    string `json:"line,omitempty"`   // the capability that allows it, as in the manifest
	Note    string `json:"note,omitempty"`   // what else decides
	Fix     string `json:"fix,omitempty"`    // the capability that would allow it
	Advice  string `json:"advice,omitempty"` // without one: what the owner can do instead, or why nothing
}

// Sandbox is what an answer depends on besides the policy. The zero value is a
// sandbox with one folder at /workspace, of which nothing is known.
type Sandbox struct {
	Shares []Share
	// HostExecuted reports whether hosts execute what is at a place below a
	// share; nil: no place is such.
	HostExecuted func(rel string) bool
	// Readlink returns the target of what is a symbolic link, by its canonical
	// name for the app, and "" for what is none; nil: nothing is one.
	Readlink func(name string) string
}

// Share is a folder of the host as the app sees it.
type Share struct {
	Path     string
	Aliases  []string
	ReadOnly bool
	Excluded func(rel string) bool // what does not exist for the app; nil: everything does
}

// Why answers a question about one process of an app. Symbolic links that the app
// can see are followed, as far as in can read them.
func Why(p policy.Policy, process string, in Sandbox, q Question) (Answer, error) {
	one, err := p.For(process)
	if err != nil {
		return Answer{}, err
	}
	if len(in.Shares) == 0 {
		in.Shares = []Share{{Path: "/workspace"}}
	}
	w := why{one, in}
	switch q.Op {
	case Read, Write, Exec:
		return w.place(q)
	case Connect, Bind:
		return w.port(q)
	case Call:
		return w.call(q.Object)
	}
	return Answer{}, fmt.Errorf("cannot answer: %s is none of %v", quote(string(q.Op)), Ops())
}

type why struct {
	p  policy.Policy
	in Sandbox
}

// place answers about a path.
func (w why) place(q Question) (Answer, error) {
	name, err := w.clean(q.Object)
	if err != nil {
		return Answer{}, err
	}
	to, err := w.follow(name)
	if err != nil {
		return Answer{}, err
	}
	a := w.file(q.Op, to)
	if a.Object = to; to != name {
		a.Note = strings.TrimSuffix(quote(name)+" leads there by a symbolic link; "+a.Note, "; ")
	}
	return a, nil
}

// clean returns the canonical form of a path as the app may name it.
func (w why) clean(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("cannot answer: %s is no path", quote(name))
	}
	if !path.IsAbs(name) {
		name = w.workDir() + "/" + name
	}
	return w.canonical(intoRoot(path.Clean(name), w.workDir())), nil
}

// canonical names what is in a share by the share's path instead of an alias.
func (w why) canonical(name string) string {
	for _, s := range w.in.Shares {
		for _, alias := range s.Aliases {
			if policy.Below(name, alias) {
				return s.Path + strings.TrimPrefix(name, alias)
			}
		}
	}
	return name
}

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// follow returns where name leads. A link in a place that does not exist for the
// app leads nowhere.
func (w why) follow(name string) (string, error) {
	if w.in.Readlink == nil {
		return name, nil
	}
	at, rest := "/", strings.Split(name, "/")
	for followed := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := w.canonical(path.Join(at, part))
		to := ""
		if w.exists(next) {
			to = w.in.Readlink(next)
		}
		if to == "" {
			at = next
			continue
		}
		if followed++; followed > maxLinks {
			return "", fmt.Errorf("cannot answer: %s leads through too many symbolic links", quote(name))
		}
		if path.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at, nil
}

// exists reports whether the app has the folder in which name is.
func (w why) exists(name string) bool {
	_, base := policy.BaselineAt(name, w.p.Terminal)
	_, granted := policy.Covers(w.p, name, false)
	return base || granted
}

// workDir is where the enforcer starts the app.
func (w why) workDir() string {
	if slices.ContainsFunc(w.p.Paths, func(g policy.Path) bool { return g.Path == "/workspace" }) {
		return "/workspace"
	}
	return "/scratch"
}

// intoRoot follows what /proc says of a process's own root and folder, which may
// lead into /proc again.
func intoRoot(name, workDir string) string {
	for {
		to := throughProc(name, workDir)
		if to == name {
			return name
		}
		name = to // shorter, or with fewer names of /proc
	}
}

func throughProc(name, workDir string) string {
	parts := strings.Split(name, "/")
	if len(parts) < 4 || parts[1] != "proc" || parts[2] != "self" && parts[2] != "thread-self" {
		return name
	}
	rest := parts[3:]
	if len(rest) > 2 && rest[0] == "task" {
		rest = rest[2:]
	}
	switch rest[0] {
	case "root":
		return path.Clean("/" + strings.Join(rest[1:], "/"))
	case "cwd":
		return path.Clean(workDir + "/" + strings.Join(rest[1:], "/"))
	}
	return name
}

func (w why) file(op Op, name string) Answer {
	if place, ok := policy.BaselineAt(name, w.p.Terminal); ok {
		return w.baseline(op, name, place)
	}
	if a, ok := stream(op, name); ok {
		return a
	}
	if share, ok := w.share(name); ok && share.Excluded != nil && share.Excluded(rel(share, name)) {
		return Answer{By: "the shared folder: this name is excluded, it does not exist for the app", Advice: "the owner of this sandbox may start it without --exclude for it"}
	}
	if op == Exec {
		return Answer{By: "Landlock: only what lies in /app may be executed; what is mounted elsewhere is noexec", Advice: noExec}
	}
	grant, ok := policy.Covers(w.p, name, op == Write)
	switch {
	case !ok:
		return w.notGranted(op, name, grant)
	case w.beside(op, name):
		return Answer{By: "the mount tree: /workspace holds only the shared folders " + w.held(), Advice: "name a path below one of them; the owner of this sandbox may share another folder"}
	case op == Write:
		return w.write(name, grant)
	}
	return Answer{Allowed: true, By: "Landlock and the mount tree, by the manifest", Line: capability(grant), Note: hostDecides}
}

const noExec = "none: only what is part of the app can be executed; the app's author may put the program into it"

const hostDecides = "the file's own permissions on the host count as well"

// write judges a place that a write capability covers.
func (w why) write(name string, grant policy.Path) Answer {
	share, shared := w.share(name)
	switch {
	case shared && share.ReadOnly:
		return Answer{By: "the shared folder is mounted read-only", Advice: "the owner of this sandbox may start it without :ro"}
	case shared && w.in.HostExecuted != nil && w.in.HostExecuted(rel(share, name)):
		return Answer{By: "the shared folder: programs of the host execute or obey what has this name", Advice: "the owner of this sandbox may add the name to host_executed in the manifest and approve it"}
	}
	return Answer{Allowed: true, By: "Landlock and the mount tree, by the manifest", Line: capability(grant), Note: hostDecides}
}

// notGranted explains a place that no capability covers for op.
func (w why) notGranted(op Op, name string, grant policy.Path) Answer {
	fix, none := fixFor(op, name)
	a := Answer{Fix: fix, Advice: none}
	switch {
	case grant.Path != "":
		a.By = "the mount tree and Landlock: a read scope is mounted read-only"
		a.Line = capability(grant)
	case w.above(name):
		a.By = "Landlock: the folder exists, because something below it does, and nothing covers it"
	case policy.Below(name, "/tmp") || policy.Below(name, "/run/canary"):
		a.By = "Landlock: no capability covers it"
	default:
		a.By = "the mount tree: it does not exist for the app"
		if op == Write {
			a.By = "the mount tree: the root filesystem is read-only, and it does not exist there"
		}
	}
	return a
}

// baseline judges what every app has.
func (w why) baseline(op Op, name string, place policy.Place) Answer {
	a := Answer{By: "the baseline of every app: " + place.What}
	switch op {
	case Exec:
		a.Allowed = place.Use == policy.UseCode
	case Write:
		a.Allowed = place.Use == policy.UseWrite || place.Use == policy.UseDevice ||
			place.Use == policy.UseTerminal && name != "/dev/pts" // the kernel makes what is in it
	default:
		a.Allowed = true
	}
	if policy.Below(name, "/proc/1") {
		a.Allowed, a.By = false, "the mount tree: /proc shows the app's own processes, and this is the one that guards it"
	}
	switch {
	case a.Allowed:
	case op == Exec:
		a.Advice = noExec
	default:
		a.Advice = "none: no capability changes the baseline"
	}
	return a
}

// stream answers for what the process has open already.
func stream(op Op, name string) (Answer, bool) {
	if !slices.Contains([]string{"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd"}, path.Clean(name)) && !policy.Below(name, "/dev/fd") {
		return Answer{}, false
	}
	return Answer{Allowed: op != Exec && (op == Read || name != "/dev/fd"), By: "the process itself: it leads to what it has open"}, true
}

func capability(g policy.Path) string { return fmt.Sprintf("filesystem:%s:%s", g.Access, g.Path) }

// fixFor names the narrowest capability that would allow op on the path itself.
func fixFor(op Op, name string) (fix, none string) {
	for _, root := range []string{"/workspace", "/tmp"} {
		for at := name; policy.Below(at, root); at = path.Dir(at) {
			fix := fmt.Sprintf("filesystem:%s:%s", op, at)
			if _, err := manifest.ParseCapability(fix); err == nil { // not every name can be a scope
				return fix, ""
			}
		}
	}
	return "", "none: a filesystem scope may only name /workspace, /context, /tmp, /app"
}

// above reports whether something that exists for the app lies below name.
func (w why) above(name string) bool {
	for _, g := range w.p.Paths {
		if policy.Below(g.Path, name) {
			return true
		}
	}
	for _, place := range policy.Baseline(w.p.Terminal) {
		if policy.Below(place.Path, name) {
			return true
		}
	}
	return policy.Below("/run/canary", name)
}

// share returns the innermost share that holds name.
func (w why) share(name string) (best Share, ok bool) {
	for _, s := range w.in.Shares {
		if policy.Below(name, s.Path) && len(s.Path) > len(best.Path) {
			best, ok = s, true
		}
	}
	return best, ok
}

func rel(s Share, name string) string { return strings.TrimPrefix(name[len(s.Path):], "/") }

// beside reports whether name lies in /workspace, but in none of the shares: a
// folder that only holds shares can be listed, and nothing else exists.
func (w why) beside(op Op, name string) bool {
	if _, shared := w.share(name); shared || !policy.Below(name, "/workspace") {
		return false
	}
	return op != Read || !slices.ContainsFunc(w.in.Shares, func(s Share) bool { return policy.Below(s.Path, name) })
}

func (w why) held() string {
	var list []string
	for _, s := range w.in.Shares {
		list = append(list, quote(s.Path))
	}
	return strings.Join(list, ", ")
}

// port answers about a TCP or UDP port, or an address of another host.
func (w why) port(q Question) (Answer, error) {
	port, outside, err := parsePort(q.Object)
	if err != nil {
		return Answer{}, err
	}
	granted := w.p.Connect
	if q.Op == Bind {
		granted = w.p.Bind
	}
	line := fmt.Sprintf("network:%s:%d", q.Op, port)
	a := Answer{Object: strconv.Itoa(int(port)), Line: line}
	switch {
	case outside:
		a.Object, a.Line = q.Object, ""
		a.By, a.Advice = "the network namespace: it holds nothing but the app's own loopback", "none: this version of berth has no way out of a sandbox"
	case slices.Contains(granted, port):
		a.Allowed, a.By, a.Note = true, "Landlock and the system call filter, by the manifest", "TCP and UDP, on the app's own loopback, where only its own processes are"
	case w.p.Class == policy.ClassBase || w.p.Class == policy.ClassTerminal:
		a.By, a.Line, a.Fix = fmt.Sprintf("the system call filter %q: it has no network sockets", w.p.Class), "", line
	default:
		a.By, a.Line, a.Fix = "Landlock: no capability names this port", "", line
		a.Note = "below Landlock ABI 10 UDP is not refused, and ends at the app's own loopback"
	}
	return a, nil
}

// parsePort reads a port, or an address with one.
func parsePort(object string) (port uint16, outside bool, err error) {
	host, name := "", object
	if at := strings.LastIndexByte(object, ':'); at >= 0 {
		host, name = strings.Trim(object[:at], "[]"), object[at+1:]
	}
	n, err := strconv.ParseUint(name, 10, 16)
	if err != nil || n == 0 {
		return 0, false, fmt.Errorf("cannot answer: %s is no port from 1 to 65535, and no address with one", quote(object))
	}
	if host == "" || host == "localhost" {
		return uint16(n), false, nil
	}
	addr, err := netip.ParseAddr(host)
	return uint16(n), err != nil || !addr.IsLoopback() && !addr.IsUnspecified(), nil
}

// call answers about an export of another app.
func (w why) call(object string) (Answer, error) {
	app, export, _ := strings.Cut(object, ".")
	if _, err := manifest.ParseCapability("app:invoke:" + object); err != nil {
		return Answer{}, fmt.Errorf("cannot answer: %s is not APP or APP.EXPORT", quote(object))
	}
	a := Answer{Object: object}
	if app == w.p.App {
		a.By, a.Advice = "Berth: an app does not call itself through the sandbox", "none: it calls the function itself"
		return a, nil
	}
	for _, i := range w.p.Invoke {
		switch {
		case i.App != app:
		case len(i.Exports) == 0:
			a.Allowed, a.Line = true, "app:invoke:"+app
		case slices.Contains(i.Exports, export):
			a.Allowed, a.Line = true, "app:invoke:"+object
		}
	}
	if !a.Allowed {
		a.By, a.Fix = "PID 1 of the sandbox: no capability names it", "app:invoke:"+object
		return a, nil
	}
	a.By, a.Note = "PID 1 of the sandbox, by the manifest", "the other app has to run in the same sandbox"
	return a, nil
}

package manifest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parse reads the manifest in raw; file is its name in messages. The error is
// of type Errors and holds every fault; of faults in the YAML itself, only the
// first can be known. Parse does no I/O.
func Parse(file string, raw []byte) (Manifest, error) {
	tree, fault := readYAML(raw)
	if fault != nil {
		fault.File = file
		return Manifest{}, Errors{*fault}
	}
	d := &decoder{file: file, keys: map[string]Pos{}}
	m := Manifest{File: file, SchemaVersion: SchemaVersion, Runtime: RuntimeNone, Resources: DefaultResources()}
	d.manifest(tree, &m)
	if len(d.fault) > 0 {
		return Manifest{}, d.fault.Sorted()
	}
	m.keys = d.keys
	return m, nil
}

var (
	appName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	exportName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	semver     = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)` +
		`(-(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?` +
		`(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
)

func (d *decoder) manifest(n node, m *Manifest) {
	seen := d.mapping(n, "the manifest",
		key{"name", func(n node) { m.Name = d.appName(n, "name") }},
		key{"version", func(n node) { m.Version = d.version(n) }},
		key{"schema_version", func(n node) { m.SchemaVersion = d.schemaVersion(n) }},
		key{"description", func(n node) { m.Description, _ = d.text(n, "description", maxDescription) }},
		key{"runtime", func(n node) { m.Runtime = d.runtime(n) }},
		key{"run", func(n node) { m.Run = d.argv(n, "run") }},
		key{"build", func(n node) { m.Build = d.argv(n, "build") }},
		key{"capabilities", func(n node) { m.Capabilities = d.capabilities(n, "capabilities") }},
		key{"exports", func(n node) { m.Exports = d.exports(n) }},
		key{"secrets", func(n node) { m.Secrets = d.secrets(n) }},
		key{"host_executed", func(n node) { m.HostExecuted = d.hostExecuted(n) }},
		key{"on_install", func(n node) { m.OnInstall = d.commands(n, "on_install") }},
		key{"on_agent_ready", func(n node) { m.OnAgentReady = d.commands(n, "on_agent_ready") }},
		key{"expose", func(n node) { m.Expose = d.expose(n) }},
		key{"governs", func(n node) { m.Governs = d.boolean(n, "governs") }},
		key{"governance", func(n node) { m.Exempt = d.governance(n) }},
		key{"resources", func(n node) { m.Resources = d.resources(n) }},
	)
	maps.Copy(d.keys, seen)
	if n.kind == kindMap {
		d.whole(n, m, seen)
	}
}

// whole checks what concerns several keys.
func (d *decoder) whole(n node, m *Manifest, seen map[string]Pos) {
	for _, name := range []string{"name", "version"} {
		if _, there := seen[name]; !there {
			d.fail(n.pos, map[string]string{"name": "add a line such as name: my-app", "version": "add a line such as version: 0.1.0"}[name], "the key %q is missing", name)
		}
	}
	if m.Governs && !slices.ContainsFunc(m.Exports, func(e Export) bool { return e.Name == "evaluate_action" }) {
		d.fail(seen["governs"], "add an export named evaluate_action", "governs is true, but there is no export evaluate_action")
	}
	if len(m.Run) > 0 && m.Runtime == RuntimeNone {
		d.program(m, seen["run"])
	}
	for _, e := range m.Exports {
		d.wholeExport(m, e)
	}
}

func (d *decoder) program(m *Manifest, at Pos) {
	p := m.Run[0]
	switch clean := path.Clean("/app/" + p); {
	case strings.HasPrefix(p, "/app/") && path.Clean(p) == p:
	case !strings.HasPrefix(p, "/") && strings.HasPrefix(clean, "/app/"):
		d.fail(at, fmt.Sprintf("write %q", clean), "run names the program %s, it must be an absolute path below /app", quote(p))
	default:
		d.fail(at, "the app's folder is /app in the sandbox", "run names the program %s, it must be a clean absolute path below /app", quote(p))
	}
}

func (d *decoder) appName(n node, what string) string {
	s, ok := d.str(n, what, maxText)
	if ok && (len(s) > maxName || !appName.MatchString(s)) {
		d.fail(n.pos, "lower-case letters, digits and dashes, at most 63, no dash at either end", "%s is %s, which is not a name", what, quote(s))
	}
	return s
}

func (d *decoder) version(n node) string {
	if n.kind == kindNumber {
		d.fail(n.pos, "write three numbers, such as 1.0.0", "version is %s, which YAML reads as a number", quote(n.text))
		return ""
	}
	s, ok := d.str(n, "version", maxText)
	if ok && (len(s) > 128 || !semver.MatchString(s)) {
		hint := "write three numbers, such as 1.0.0"
		if rest, v := strings.CutPrefix(s, "v"); v && semver.MatchString(rest) {
			hint = fmt.Sprintf("write %q", rest)
		}
		d.fail(n.pos, hint, "version is %s, which is not a semantic version", quote(s))
	}
	return s
}

func (d *decoder) schemaVersion(n node) int {
	v, err := strconv.Atoi(n.text)
	switch {
	case n.kind != kindNumber || err != nil:
		d.wrong(n, "schema_version", fmt.Sprintf("the number %d", SchemaVersion))
	case v > SchemaVersion:
		d.fail(n.pos, "a newer berth reads it", "schema_version is %d, this berth reads %d", v, SchemaVersion)
	case v < SchemaVersion:
		d.fail(n.pos, "leave the key out: the current version is meant then", "schema_version is %d, this berth reads %d and nothing older exists", v, SchemaVersion)
	}
	return v
}

func (d *decoder) runtime(n node) Runtime {
	s, _ := d.word(n, "runtime", string(RuntimeNone), string(RuntimePosix), string(RuntimePython), string(RuntimeNode), string(RuntimeBrowser))
	return Runtime(s)
}

// argv reads a command as a list: no shell splits or expands it.
func (d *decoder) argv(n node, what string) []string {
	if n.kind == kindText {
		d.fail(n.pos, "write it as a list: [program, argument]; no shell reads it", "%s is text, it must be a list", what)
		return nil
	}
	var argv []string
	d.list(n, what, maxArgs, func(i int, n node) {
		if s, ok := d.text(n, what, maxText); ok {
			argv = append(argv, s)
		}
	})
	if n.kind == kindList && (len(n.items) == 0 || len(argv) > 0 && argv[0] == "") {
		d.fail(n.pos, "remove the key for the default", "%s names no program", what)
	}
	return argv
}

// commands reads the texts of on_install and on_agent_ready.
func (d *decoder) commands(n node, what string) []string {
	var list []string
	d.list(n, what, maxCommands, func(i int, n node) {
		if s, ok := d.text(n, what, maxText); ok {
			if strings.TrimSpace(s) == "" {
				d.fail(n.pos, "remove the item", "an item of %s is empty", what)
			}
			list = append(list, s)
		}
	})
	return list
}

func (d *decoder) expose(n node) Expose {
	var e Expose
	d.nested("expose", d.mapping(n, "expose",
		key{"browser", func(n node) { e.Browser = d.boolean(n, "expose.browser") }},
		key{"terminal", func(n node) { e.Terminal = d.boolean(n, "expose.terminal") }},
		key{"preview", func(n node) { e.Preview = d.boolean(n, "expose.preview") }},
	))
	return e
}

func (d *decoder) governance(n node) (exempt bool) {
	d.nested("governance", d.mapping(n, "governance",
		key{"exempt", func(n node) { exempt = d.boolean(n, "governance.exempt") }},
	))
	return exempt
}

func (d *decoder) resources(n node) Resources {
	r := DefaultResources()
	d.nested("resources", d.mapping(n, "resources",
		key{"cpu", func(n node) { r.CPUMilli, _ = d.decimal(n, "resources.cpu", 10, 256_000) }},
		key{"memory_mb", func(n node) { r.MemoryMB = d.integer(n, "resources.memory_mb", 16, 1<<20) }},
		key{"pids", func(n node) { r.Pids = d.integer(n, "resources.pids", 16, 32768) }},
		key{"gpu", func(n node) { r.GPU = d.integer(n, "resources.gpu", 0, 64) }},
	))
	return r
}

// nested remembers where the keys of a mapping below the top stand.
func (d *decoder) nested(what string, seen map[string]Pos) {
	for name, at := range seen {
		d.keys[what+"."+name] = at
	}
}

package manifest

import (
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// Grants is a checked grant file: what the user lets one app do, for each
// folder that it was started from. It is read as strictly as a manifest, by the
// same reader.
type Grants struct {
	App     string
	Folders []Grant
}

// Grant is what was approved for the app of one folder. Approved is the policy's
// text and SHA256 the digest of its canonical bytes; package host/grant owns both.
// Exports and Paths are nil where nothing narrows them.
type Grant struct {
	Pos
	Folder   string
	SHA256   string
	Approved string
	ReadOnly bool
	Exports  []string
	Paths    []string
}

const (
	maxFolders  = 256
	maxApproved = MaxBytes
)

// ParseGrants reads a grant file; file is its name in messages. The error is of
// type Errors and holds every fault.
func ParseGrants(file string, raw []byte) (Grants, error) {
	tree, fault := readYAML(raw)
	if fault != nil {
		fault.File = file
		return Grants{}, Errors{*fault}
	}
	d := &decoder{file: file, keys: map[string]Pos{}}
	var g Grants
	version := 0
	seen := d.mapping(tree, "the grants",
		key{"schema_version", func(n node) { version = d.schemaVersion(n) }},
		key{"app", func(n node) { g.App = d.appName(n, "app") }},
		key{"folders", func(n node) {
			d.list(n, "folders", maxFolders, func(_ int, n node) { g.Folders = append(g.Folders, d.grant(n)) })
		}},
	)
	for _, name := range []string{"schema_version", "app", "folders"} {
		if _, there := seen[name]; !there && tree.kind == kindMap {
			d.fail(tree.pos, "", "the key %q is missing", name)
		}
	}
	d.wholeGrants(g)
	if len(d.fault) > 0 || version != SchemaVersion {
		return Grants{}, d.fault.Sorted()
	}
	return g, nil
}

func (d *decoder) grant(n node) Grant {
	g := Grant{Pos: n.pos}
	seen := d.mapping(n, "a folder's grant",
		key{"folder", func(n node) { g.Folder = d.grantFolder(n) }},
		key{"approved_sha256", func(n node) { g.SHA256 = d.digest(n) }},
		key{"approved", func(n node) { g.Approved, _ = d.text(n, "approved", maxApproved) }},
		key{"read_only", func(n node) { g.ReadOnly = d.boolean(n, "read_only") }},
		key{"exports", func(n node) { g.Exports = d.grantExports(n) }},
		key{"paths", func(n node) { g.Paths = d.grantPaths(n) }},
		key{"hosts", func(n node) {
			d.fail(n.pos, "remove the key", "hosts narrows network:host, which this version of berth does not have yet")
		}},
	)
	for _, name := range []string{"folder", "approved_sha256", "approved"} {
		if _, there := seen[name]; !there && n.kind == kindMap {
			d.fail(n.pos, "remove this entry; the next start, or berth approve, makes it anew", "the key %q of a folder's grant is missing", name)
		}
	}
	return g
}

func (d *decoder) wholeGrants(g Grants) {
	lines := map[string]int{}
	for _, f := range g.Folders {
		if before, twice := lines[f.Folder]; twice && f.Folder != "" {
			d.fail(f.Pos, "remove one of them", "the folder %s stands twice, first on line %d", quote(f.Folder), before)
		}
		lines[f.Folder] = f.Line
	}
}

func (d *decoder) grantFolder(n node) string {
	s, ok := d.str(n, "folder", maxText)
	if ok && (!path.IsAbs(s) || path.Clean(s) != s) {
		d.fail(n.pos, "", "folder is %s, which is not a clean absolute path", quote(s))
	}
	return s
}

func (d *decoder) digest(n node) string {
	s, ok := d.str(n, "approved_sha256", maxText)
	if raw, err := hex.DecodeString(s); ok && (err != nil || len(raw) != 32 || s != strings.ToLower(s)) {
		d.fail(n.pos, "", "approved_sha256 is %s, which is not a sha256 in lower-case hex", quote(s))
	}
	return s
}

func (d *decoder) grantExports(n node) []string {
	list := []string{}
	d.list(n, "the exports of a grant", maxExports, func(_ int, n node) {
		s, ok := d.str(n, "the name of an export", maxText)
		switch {
		case !ok:
		case len(s) > maxName || !exportName.MatchString(s):
			d.fail(n.pos, "", "%s is not a name of an export", quote(s))
		case slices.Contains(list, s):
			d.fail(n.pos, "remove one of them", "the export %s stands twice", quote(s))
		default:
			list = append(list, s)
		}
	})
	return list
}

func (d *decoder) grantPaths(n node) []string {
	list := []string{}
	d.list(n, "the paths of a grant", maxCapabilities, func(_ int, n node) {
		s, ok := d.str(n, "a path of a grant", maxScope)
		if !ok {
			return
		}
		if fault := checkPath(s); fault != nil {
			d.fail(n.pos, fault.Hint, "the path %s of a grant: %s", quote(s), fault.Msg)
			return
		}
		list = append(list, s)
	})
	return list
}

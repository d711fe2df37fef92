package kbuild

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/berthos/berth/kernel"
)

// EnvMirror overrides the machine's mirrors: an http(s) URL, a file:// URL or a
// local folder.
const EnvMirror = "BERTH_DEBIAN_MIRROR"

// Mirrors returns the Debian mirrors to use: the override if there is one, else
// what apt is configured with. root is the root of the file system.
func Mirrors(override string, root fs.FS) []string {
	if override != "" {
		return []string{strings.TrimRight(override, "/")}
	}
	var found []string
	add := func(uris []string) {
		for _, u := range uris {
			u = strings.TrimRight(u, "/")
			if fetchable(u) && !slices.Contains(found, u) {
				found = append(found, u)
			}
		}
	}
	names, _ := fs.Glob(root, "etc/apt/sources.list.d/*")
	for _, name := range append([]string{"etc/apt/sources.list"}, names...) {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		switch path.Ext(name) {
		case ".list":
			add(oneLine(string(text)))
		case ".sources":
			add(deb822(string(text)))
		}
	}
	return found
}

func fetchable(uri string) bool {
	for _, scheme := range []string{"http://", "https://", "file:"} {
		if strings.HasPrefix(uri, scheme) {
			return true
		}
	}
	return false
}

// oneLine reads apt's older format: deb [options] URI suite component...
func oneLine(text string) []string {
	var uris []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "deb" {
			continue
		}
		f = f[1:]
		if len(f) > 0 && strings.HasPrefix(f[0], "[") {
			end := slices.IndexFunc(f, func(s string) bool { return strings.HasSuffix(s, "]") })
			f = f[end+1:]
		}
		if len(f) >= 3 && slices.Contains(f[2:], "main") {
			uris = append(uris, f[0])
		}
	}
	return uris
}

// deb822 reads apt's newer format: stanzas of fields.
func deb822(text string) []string {
	var uris []string
	for _, stanza := range paragraphs(text) {
		enabled := strings.ToLower(stanza["enabled"])
		switch {
		case enabled == "no" || enabled == "false" || enabled == "0":
		case !slices.Contains(strings.Fields(stanza["types"]), "deb"):
		case slices.Contains(strings.Fields(stanza["components"]), "main"):
			uris = append(uris, strings.Fields(stanza["uris"])...)
		}
	}
	return uris
}

// paragraphs reads "Field: value" stanzas, the format of Debian's control
// files; field names become lower case, continued lines are joined.
func paragraphs(text string) []map[string]string {
	var all []map[string]string
	cur, last := map[string]string{}, ""
	flush := func() {
		if len(cur) > 0 {
			all = append(all, cur)
		}
		cur, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			cur[last] += "\n" + strings.TrimSpace(line)
		default:
			name, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(name)
			cur[last] = strings.TrimSpace(value)
		}
	}
	flush()
	return all
}

// sources are the places a pinned package may be: each mirror's pool, a local
// folder that holds just the file, and the pin's archives.
func sources(pin kernel.Pin, mirrors []string) []string {
	var all []string
	for _, m := range mirrors {
		if strings.HasPrefix(m, "http") {
			// As apt does it: some servers take a plus for a space.
			all = append(all, m+"/"+strings.ReplaceAll(pin.PoolPath, "+", "%2b"))
			continue
		}
		all = append(all, m+"/"+pin.PoolPath, m+"/"+pin.FileName())
	}
	return append(all, pin.Archives...)
}

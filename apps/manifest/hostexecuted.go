package manifest

import (
	"path"
	"slices"
	"strings"
)

// hostExecuted reads the names that programs of the host execute or obey and
// that the app asks to write all the same, such as ".git/config". Each is
// relative and matches at any depth of a shared folder; host/files owns the list
// of those that are protected.
func (d *decoder) hostExecuted(n node) []string {
	var list []string
	d.list(n, "host_executed", maxHostExecuted, func(_ int, n node) {
		s, ok := d.str(n, "a name of host_executed", maxScope)
		switch {
		case !ok:
		case s == "" || s == "." || path.IsAbs(s) || path.Clean(s) != s || s == ".." || strings.HasPrefix(s, "../"):
			d.fail(n.pos, "write a name such as .git/config, without the folder that is shared", "host_executed: %s is not a clean relative name", quote(s))
		case strings.EqualFold(s, "berth.yml"):
			d.fail(n.pos, "remove the line", "host_executed: %s says what apps may do, no app is given it", quote(s))
		case slices.Contains(list, s):
			d.fail(n.pos, "remove one of them", "host_executed: %s stands twice", quote(s))
		default:
			list = append(list, s)
		}
	})
	return list
}

// exportSecrets reads which of the app's secrets a narrowed export is given.
func (d *decoder) exportSecrets(n node) []string {
	var list []string
	d.list(n, "the secrets of an export", maxSecrets, func(_ int, n node) {
		s := d.secretName(n)
		if slices.Contains(list, s) {
			d.fail(n.pos, "remove one of them", "the secret %s stands twice", quote(s))
			return
		}
		list = append(list, s)
	})
	return list
}

// wholeExport checks an export against the app.
func (d *decoder) wholeExport(m *Manifest, e Export) {
	for _, c := range e.Capabilities {
		if !slices.ContainsFunc(m.Capabilities, func(of Capability) bool { return of.Covers(c) }) {
			d.fail(c.Pos, "add it to the app's capabilities, or remove it here", "export %s asks for %s, which the app's own capabilities do not cover", e.Name, c)
		}
	}
	if len(e.Secrets) > 0 && !e.Narrowed {
		d.fail(e.Pos, "add capabilities: [] or the capabilities that it needs", "export %s names secrets but no capabilities: it would be given all of both", e.Name)
	}
	for _, name := range e.Secrets {
		if !slices.ContainsFunc(m.Secrets, func(s Secret) bool { return s.Name == name }) {
			d.fail(e.Pos, "add it to the app's secrets, or remove it here", "export %s asks for the secret %s, which the app does not have", e.Name, quote(name))
		}
	}
}

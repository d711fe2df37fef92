// Package grant owns what the user lets an app do: the record of what was
// approved for it, and what the user takes away of what its manifest declares.
// What is enforced is manifest ∩ grant.
package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/explain"
	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/policy"
)

// Blank returns p without what is no grant: the code's digest and the version,
// which change with every build.
func Blank(p policy.Policy) policy.Policy {
	p.Code, p.Version = "", ""
	return p
}

// Digest identifies what p lets its app do.
func Digest(p policy.Policy) (string, error) {
	raw, err := Blank(p).Encode()
	if err != nil {
		return "", err
	}
	return policy.Digest(raw), nil
}

// Known is what is recorded of the app in a folder.
type Known struct {
	There     bool          // something is
	Approved  policy.Policy // blank; the zero value if nothing is
	Narrowing Narrowing
}

// Look returns what is recorded of an app, and changes nothing.
func Look(appFolder, app string) (Known, error) {
	folder, err := canonical(appFolder)
	if err != nil {
		return Known{}, err
	}
	s, err := openStore(false)
	if err != nil || s == nil {
		return Known{}, err
	}
	defer s.close()
	list, err := s.read(app)
	if err != nil {
		return Known{}, err
	}
	return known(list, folder)
}

func known(list manifest.Grants, folder string) (Known, error) {
	at := index(list, folder)
	if at < 0 {
		return Known{}, nil
	}
	g := list.Folders[at]
	p, err := approved(g)
	return Known{There: err == nil, Approved: p, Narrowing: narrowing(g)}, err
}

// Resolve returns what the app in a folder is started with: p, as its manifest
// compiles, less what the user's grant takes away. The first start of an app is
// recorded; what allows more than the record is an error that says what, with
// the command that approves it. Notes are for the user to read.
func Resolve(appFolder string, p policy.Policy) (policy.Policy, []string, error) {
	folder, err := canonical(appFolder)
	if err != nil {
		return policy.Policy{}, nil, err
	}
	s, err := openStore(true)
	if fault := err; unwritable(fault) { // what is recorded holds all the same
		if s, err = openStore(false); s == nil && err == nil {
			return unrecorded(folder, p, fault)
		}
	}
	if err != nil {
		return policy.Policy{}, nil, err
	}
	defer s.close()
	list, err := s.read(p.App)
	if err != nil {
		return policy.Policy{}, nil, err
	}
	k, err := known(list, folder)
	if err != nil {
		return policy.Policy{}, nil, err
	}
	if !k.There {
		out, notes, err := s.first(list, folder, p)
		if unwritable(err) {
			return unrecorded(folder, p, err)
		}
		return out, notes, err
	}
	out, err := k.Check(folder, p)
	return out, k.notes(p, out, s.file(p.App)), err
}

// Check returns p less what the grant takes away, if the user approved all of
// it before.
func (k Known) Check(folder string, p policy.Policy) (policy.Policy, error) {
	now, err := Apply(p, k.Narrowing)
	if err != nil {
		return policy.Policy{}, err
	}
	before, err := Apply(k.Approved, k.Narrowing)
	if err != nil { // every export is new: what they may do is compared all the same
		before = k.Approved
		before.Rights = k.Narrowing.rights(before.Rights)
	}
	if wider := explain.Widens(explain.Diff(before, now)); len(wider) > 0 {
		return policy.Policy{}, widening(folder, p.App, "it allows more than was approved", wider)
	}
	return now, nil
}

// Permits reports whether Resolve would, and records nothing.
func Permits(appFolder string, p policy.Policy) error {
	folder, err := canonical(appFolder)
	if err != nil {
		return err
	}
	k, err := Look(folder, p.App)
	if err != nil {
		return err
	}
	if special := needsApproval(p); !k.There && len(special) > 0 {
		return widening(folder, p.App, "this needs approval", special)
	}
	if !k.There {
		return nil
	}
	_, err = k.Check(folder, p)
	return err
}

// first records what an app was first started with. What needs approval in any
// case does not start before.
func (s *store) first(list manifest.Grants, folder string, p policy.Policy) (policy.Policy, []string, error) {
	if special := needsApproval(p); len(special) > 0 {
		return policy.Policy{}, nil, widening(folder, p.App, "this needs approval", special)
	}
	if err := s.put(list, folder, p, Narrowing{}); err != nil {
		return policy.Policy{}, nil, err
	}
	sum, err := Digest(p)
	note := fmt.Sprintf("recorded: this is the first start of %s from %s; a manifest that allows more will need berth approve (sha256 %.12s, %s)", p.App, folder, sum, s.file(p.App))
	return p, []string{note}, err
}

// unwritable reports whether there is no place for grants at all: a home that is
// read-only, or of somebody else.
func unwritable(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)
}

// unrecorded is a first start of which nothing can be kept. It may happen, as it
// may in a home that is made anew each time, but not in silence.
func unrecorded(folder string, p policy.Policy, fault error) (policy.Policy, []string, error) {
	if special := needsApproval(p); len(special) > 0 {
		return policy.Policy{}, nil, widening(folder, p.App, "this needs approval", special)
	}
	return p, []string{fmt.Sprintf("not recorded: %v; if the manifest of %s allows more at the next start, berth will not notice: set XDG_CONFIG_HOME to a folder that can be written", fault, p.App)}, nil
}

// needsApproval returns what no first start brings by itself.
func needsApproval(p policy.Policy) []explain.Change {
	if len(p.HostExecuted) == 0 {
		return nil
	}
	without := p
	without.HostExecuted = []string{}
	return explain.Widens(explain.Diff(without, p))
}

func widening(folder, app, why string, wider []explain.Change) error {
	var b strings.Builder
	for _, c := range wider {
		b.WriteString("\n  " + c.String())
	}
	return hint.Errorf("read it, then: berth approve "+quote(folder), "cannot start app %q: %s:%s", app, why, b.String())
}

// notes say what the grant took away.
func (k Known) notes(p, out policy.Policy, file string) (notes []string) {
	for _, c := range explain.Diff(p, out) {
		text := c.Text
		if c.Where != "app" {
			text += " (" + c.Where + ")"
		}
		notes = append(notes, fmt.Sprintf("narrowed by %s: %s", file, text))
	}
	return notes
}

// Approve records that the user approves p for the app in a folder, and what
// they take away of it.
func Approve(appFolder string, p policy.Policy, n Narrowing) (file string, err error) {
	folder, err := canonical(appFolder)
	if err != nil {
		return "", err
	}
	if _, err := Apply(p, n); err != nil {
		return "", err
	}
	s, err := openStore(true)
	if err != nil {
		return "", err
	}
	defer s.close()
	list, err := s.read(p.App)
	if err != nil {
		return "", err
	}
	return s.file(p.App), s.put(list, folder, p, n)
}

// canonical names a folder as grants do: absolute and without symbolic links.
func canonical(folder string) (string, error) {
	abs, err := filepath.Abs(folder)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the grant of the app in %s: %w", folder, err)
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		return "", fmt.Errorf("cannot find the grant of the app in %s: it is not a folder", folder)
	}
	return abs, nil
}

func index(list manifest.Grants, folder string) int {
	return slices.IndexFunc(list.Folders, func(g manifest.Grant) bool { return g.Folder == folder })
}

// quote makes a folder safe to print and to paste into a shell.
func quote(s string) string {
	if strings.Trim(s, "/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/files"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// Share is a folder of the host that the apps may be given parts of.
type Share struct {
	HostDir  string
	Path     string // /workspace or a name below it; "": /workspace
	ReadOnly bool
	Exclude  []string // names, or patterns of one name, that do not exist for the guest
	App      string   // the only app that sees it; "": every one
}

// share is a checked share.
type share struct {
	Share
	aliases []string
	views   []view // the first is that of processes that may change no such name
}

// view is a share as those processes see it whose policies let them change the
// same names that hosts execute.
type view struct {
	name    string       // on the link
	allowed []string     // names that are not protected, sorted
	protect []string     // names that are
	used    bool         // some process has it
	places  files.Places // what a machine that mounts it must cover
}

// aliasTaken are places of the guest under which no folder of the host can
// appear under its own name; the enforcer has the same list.
var aliasTaken = []string{"/app", "/dev", "/proc", "/sys", "/etc", "/run", "/workspace", "/context", "/scratch"}

// checkShares resolves every folder and decides under which names it appears.
func checkShares(in []Share) (out []share, notes []string, err error) {
	for n, sh := range in {
		if sh.Path == "" {
			sh.Path = "/workspace"
		}
		if path.Clean(sh.Path) != sh.Path || sh.Path != "/workspace" && !below(sh.Path, "/workspace") {
			return nil, nil, fmt.Errorf("cannot share %s at %q: the place is not /workspace or below it", sh.HostDir, sh.Path)
		}
		if slices.ContainsFunc(out, func(o share) bool { return o.Path == sh.Path && (o.App == "" || sh.App == "" || o.App == sh.App) }) {
			return nil, nil, hint.Errorf("give each a place of its own below /workspace", "cannot share %s at %s: another folder is there", sh.HostDir, sh.Path)
		}
		asked := sh.HostDir
		if sh.HostDir, err = resolve(asked); err != nil {
			return nil, nil, err
		}
		if err := files.Check(sh.HostDir); err != nil {
			return nil, nil, err
		}
		if !sh.ReadOnly {
			if err := files.CheckOwn(sh.HostDir); err != nil {
				return nil, nil, err
			}
		}
		s := share{Share: sh, views: []view{{name: "share" + strconv.Itoa(n)}}}
		for _, alias := range slices.Compact([]string{sh.HostDir, absolute(asked)}) {
			if why := aliasRefused(alias); why != "" {
				notes = append(notes, fmt.Sprintf("%s appears only as %s: its own path %s", alias, sh.Path, why))
			} else {
				s.aliases = append(s.aliases, alias)
			}
		}
		out = append(out, s)
	}
	return out, notes, nil
}

// makeViews gives each share a view for every set of names that hosts execute
// and that a process of some app may change all the same. So what one app was
// allowed stays protected from the others.
func (s *Sandbox) makeViews(specs []appSpec) error {
	all := s.o.HostExecuted
	if all == nil {
		all = files.HostExecutedNames()
	}
	sets, plain := [][]string{nil}, len(specs) == 0
	for _, a := range specs {
		for _, name := range a.policy.Processes() {
			p, err := a.policy.For(name)
			if err != nil {
				return err
			}
			if err := knownNames(p, all); err != nil {
				return err
			}
			plain = plain || len(p.HostExecuted) == 0
			if !slices.ContainsFunc(sets, func(set []string) bool { return slices.Equal(set, p.HostExecuted) }) {
				sets = append(sets, p.HostExecuted)
			}
		}
	}
	for i := range s.shares {
		sh := &s.shares[i]
		main := sh.views[0].name
		sh.views = nil
		for n, set := range sets {
			v := view{name: main, allowed: set, protect: files.WithoutNames(all, set), used: n > 0 || plain}
			if n > 0 {
				v.name += "." + strconv.Itoa(n)
			}
			if n == 0 || !sh.ReadOnly {
				sh.views = append(sh.views, v)
			}
		}
	}
	return nil
}

// knownNames refuses a name that is on no list: the app would be promised what
// it cannot have, or has a spelling that protects nothing.
func knownNames(p policy.Policy, all []string) error {
	known := append(files.HostExecutedNames(), all...)
	for _, name := range p.HostExecuted {
		if len(files.WithoutNames(known, []string{name})) == len(known) {
			return hint.Errorf("write it as on the list, which docs/host-executed.md has", "cannot start app %q: host_executed: %q is none of the names that are protected", p.App, name)
		}
	}
	return nil
}

// sharesFor returns the names, on the link, of the shares that a process with
// these rights is given.
func (s *Sandbox) sharesFor(app string, r policy.Rights) ([]string, error) {
	names := []string{}
	for _, sh := range s.shares {
		if sh.App != "" && sh.App != app {
			continue
		}
		v := 0
		if !sh.ReadOnly {
			v = slices.IndexFunc(sh.views, func(v view) bool { return slices.Equal(v.allowed, r.HostExecuted) })
		}
		if v < 0 {
			return nil, hint.Errorf("start the sandbox again", "host_executed of its policy has changed, and this sandbox was started without such a view of %s", sh.HostDir)
		}
		names = append(names, sh.views[v].name)
	}
	return names, nil
}

// findPlaces looks for what a file server would refuse by name, for machines
// that mount shares.
func (s *Sandbox) findPlaces(ctx context.Context) error {
	if s.o.Machine.ShareSource() != machine.SourceBind {
		return nil
	}
	for i := range s.shares {
		for v := range s.shares[i].views {
			if err := s.findPlacesOf(ctx, s.shares[i], v); err != nil {
				return fmt.Errorf("cannot share %s on machine %s: %w", s.shares[i].HostDir, s.o.Machine.Name(), err)
			}
		}
	}
	return nil
}

func (s *Sandbox) findPlacesOf(ctx context.Context, sh share, v int) error {
	search := files.Search{Exclude: sh.Exclude, HostExecuted: sh.views[v].protect, Setuid: true}
	if sh.ReadOnly {
		search.HostExecuted, search.Setuid = nil, false
	}
	p, err := files.FindPlaces(ctx, sh.HostDir, search)
	if err != nil {
		return err
	}
	sh.views[v].places = p
	if v > 0 {
		return nil // the notes would be the same
	}
	if len(sh.Exclude) > 0 {
		s.notes = append(s.notes, sh.HostDir+": excluded names are hidden where they exist at the start; such as are made later are seen")
	}
	if !sh.ReadOnly {
		s.notes = append(s.notes, sh.HostDir+": names that hosts execute, such as .git/hooks, are read-only where they exist at the start; the app could make new ones, which is reported")
	}
	if n := len(p.Setuid); n > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s: read-only, as they run as their owner or group: %s", sh.HostDir, some(p.Setuid)))
	}
	if p.Cut {
		s.notes = append(s.notes, sh.HostDir+": it is so large that not all such names were found")
	}
	return nil
}

// resolve returns the folder's absolute path without symlinks.
func resolve(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("cannot share a folder: no name given")
	}
	real, err := filepath.EvalSymlinks(absolute(dir))
	if errors.Is(err, os.ErrNotExist) {
		return "", hint.Errorf("create it: mkdir -p "+dir, "cannot share %s: it does not exist", dir)
	}
	if err != nil {
		return "", fmt.Errorf("cannot share %s: %w", dir, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fmt.Errorf("cannot share %s: %w", dir, err)
	}
	if !info.IsDir() {
		return "", hint.Errorf("give a folder", "cannot share %s: it is not a folder", dir)
	}
	if err := unix.Access(real, unix.R_OK|unix.X_OK); err != nil {
		return "", hint.Errorf("run berth as the user who owns it", "cannot share %s: %w", dir, err)
	}
	return real, nil
}

func absolute(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	return abs
}

// aliasRefused says why a host path cannot be a guest path as well, or "".
func aliasRefused(p string) string {
	if !utf8.ValidString(p) {
		return "is not UTF-8"
	}
	if p == "/" || p == "/tmp" {
		return "is a folder of every sandbox"
	}
	for _, t := range aliasTaken {
		if p == t || below(p, t) || below(t, p) {
			return "is at or around " + t + ", which every sandbox has for itself"
		}
	}
	return ""
}

func below(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }

// machineShares is what the machine must know.
func (s *Sandbox) machineShares() (out []machine.Share) {
	for _, sh := range s.shares {
		for _, v := range sh.views {
			protect := slices.Concat(v.places.Protected, v.places.Setuid)
			out = append(out, machine.Share{Name: v.name, HostDir: sh.HostDir, ReadOnly: sh.ReadOnly, Hide: v.places.Hidden, Protect: protect})
		}
	}
	return out
}

// linkShares is what the guest must know.
func (s *Sandbox) linkShares() (out []link.Share) {
	for _, sh := range s.shares {
		for _, v := range sh.views {
			out = append(out, link.Share{
				Name: v.name, Path: sh.Path, Aliases: sh.aliases, ReadOnly: sh.ReadOnly,
				Source: s.o.Machine.ShareSource(), BindPath: s.instance.BindPath(v.name),
			})
		}
	}
	return out
}

// findView finds a view by its name on the link.
func (s *Sandbox) findView(name string) (share, view, bool) {
	for _, sh := range s.shares {
		for _, v := range sh.views {
			if v.name == name {
				return sh, v, true
			}
		}
	}
	return share{}, view{}, false
}

// ShareInfo is a share as apps see it.
type ShareInfo struct {
	HostDir  string
	Path     string
	Aliases  []string
	ReadOnly bool
	App      string // the only app that sees it; "": every one
}

// Shares lists the sandbox's shares.
func (s *Sandbox) Shares() (out []ShareInfo) {
	for _, sh := range s.shares {
		out = append(out, ShareInfo{sh.HostDir, sh.Path, slices.Clone(sh.aliases), sh.ReadOnly, sh.App})
	}
	return out
}

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
)

// Share is a folder of the host that the apps may be given parts of.
type Share struct {
	HostDir  string
	Path     string // /workspace or a name below it; "": /workspace
	ReadOnly bool
	Exclude  []string // names, or patterns of one name, that do not exist for the guest
	// AllowHostExecuted lifts the write protection of names that hosts execute.
	AllowHostExecuted bool
}

// share is a checked share.
type share struct {
	Share
	name    string // on the link
	aliases []string
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
		if slices.ContainsFunc(out, func(o share) bool { return o.Path == sh.Path }) {
			return nil, nil, hint.Errorf("give each a place of its own below /workspace", "cannot share %s at %s: another folder is there", sh.HostDir, sh.Path)
		}
		asked := sh.HostDir
		if sh.HostDir, err = resolve(asked); err != nil {
			return nil, nil, err
		}
		if err := files.Check(sh.HostDir); err != nil {
			return nil, nil, err
		}
		s := share{Share: sh, name: "share" + strconv.Itoa(n)}
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

// findPlaces looks for what a file server would refuse by name, for machines
// that mount shares.
func (s *Sandbox) findPlaces(ctx context.Context) error {
	if s.o.Machine.ShareSource() != machine.SourceBind {
		return nil
	}
	for i, sh := range s.shares {
		protect := !sh.AllowHostExecuted && !sh.ReadOnly
		p, err := files.FindPlaces(ctx, sh.HostDir, sh.Exclude, !protect)
		if err != nil {
			return fmt.Errorf("cannot share %s on machine %s: %w", sh.HostDir, s.o.Machine.Name(), err)
		}
		s.shares[i].places = p
		if len(sh.Exclude) > 0 {
			s.notes = append(s.notes, sh.HostDir+": excluded names are hidden where they exist at the start; such as are made later are seen")
		}
		if protect {
			s.notes = append(s.notes, sh.HostDir+": names that hosts execute, such as .git/hooks, are read-only where they exist at the start; the app could make new ones")
		}
		if p.Cut {
			s.notes = append(s.notes, sh.HostDir+": it is so large that not all such names were found")
		}
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
		out = append(out, machine.Share{Name: sh.name, HostDir: sh.HostDir, ReadOnly: sh.ReadOnly, Hide: sh.places.Hidden, Protect: sh.places.Protected})
	}
	return out
}

// linkShares is what the guest must know.
func (s *Sandbox) linkShares() (out []link.Share) {
	for _, sh := range s.shares {
		out = append(out, link.Share{
			Name: sh.name, Path: sh.Path, Aliases: sh.aliases, ReadOnly: sh.ReadOnly,
			Source: s.o.Machine.ShareSource(), BindPath: s.instance.BindPath(sh.name),
		})
	}
	return out
}

// ShareInfo is a share as apps see it.
type ShareInfo struct {
	HostDir  string
	Path     string
	Aliases  []string
	ReadOnly bool
}

// Shares lists the sandbox's shares.
func (s *Sandbox) Shares() (out []ShareInfo) {
	for _, sh := range s.shares {
		out = append(out, ShareInfo{sh.HostDir, sh.Path, slices.Clone(sh.aliases), sh.ReadOnly})
	}
	return out
}

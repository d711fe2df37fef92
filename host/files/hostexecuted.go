package files

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// HostExecuted are names that programs of the host run, or take commands from,
// for one reason.
type HostExecuted struct {
	What   string // the programs
	Reason string // what they do with such a file
	Names  []string
}

// DefaultHostExecuted is what programs of the host run, or take commands from,
// without being told to: on entering the folder, opening it in an editor, or at
// a git command. A guest that writes one has left its sandbox at the user's next
// keystroke, so they are read-only for it, unless its policy names them.
//
// A name matches at any depth, without case, and covers what is below it.
// "*" stands for part of a name, "**" for any number of names.
//
// What is not here: what a user runs by naming it (Makefile, package.json),
// and instructions to agents (AGENTS.md, CLAUDE.md), which are text.
func DefaultHostExecuted() []HostExecuted {
	return []HostExecuted{
		{"git", "runs hooks, and programs that its configuration names (pagers, editors, file system monitors, filters, ssh), at any command, also those that an editor or a prompt gives", []string{
			".git/hooks",
			".git/config",
			".git/config.lock", // becomes the config when git on the host renames it
			".git/config.worktree",
			".git/config.worktree.lock",
			".git/commondir", // makes git read another folder's config
			".git/modules/**/hooks",
			".git/modules/**/config",
			".git/modules/**/config.lock",
			".git/modules/**/config.worktree",
			".git/modules/**/commondir",
			".git/worktrees/*/config.worktree",
			".git/worktrees/*/commondir",
			".git/worktrees/*/gitdir",
			gitFile,
			".gitconfig",
			".config/git",
		}},
		{"git hook managers", "run what these say at a commit, a checkout or a push", []string{
			".githooks",
			".husky",
			".lefthook",
			"lefthook.yml",
			".lefthook.yml",
			".pre-commit-config.yaml",
		}},
		{"Berth", "builds the app by the command that its manifest names, and the manifest says what the app may touch", []string{
			ManifestName,
		}},
		{"agents", "start the tool servers and run the hooks that these name, or take permissions from them", []string{
			".mcp.json",
			"mcp.json",
			".claude",
			".claude.json",
			".cursor",
			".codex",
			".gemini",
			".windsurf",
			".continue",
			".roo",
			".kiro",
			".amazonq",
			".junie",
			".opencode",
			"opencode.json",
			"opencode.jsonc",
			".crush.json",
		}},
		{"editors", "run tasks, debuggers, containers and language servers that these name, or the file itself, on opening the folder", []string{
			".vscode",
			"*.code-workspace",
			".idea",
			".fleet",
			".zed",
			".devcontainer",
			".devcontainer.json",
			".exrc",
			".vimrc",
			".nvimrc",
			".nvim.lua",
			".dir-locals.el",
		}},
		{"environment managers", "set the shell's environment, and run commands, on entering the folder", []string{
			".envrc",
			".mise.toml",
			"mise.toml",
			".mise",
		}},
		{"package managers", "take from it the registry, the credentials and the programs that they run", []string{
			".npmrc",
			".yarnrc",
			".yarnrc.yml",
			".pnpmfile.cjs",
		}},
		{"shells", "run these at the start, if the folder is a home", []string{
			".profile",
			".bashrc",
			".bash_profile",
			".bash_login",
			".bash_logout",
			".zshrc",
			".zshenv",
			".zprofile",
			".zlogin",
			".config/fish",
		}},
		{"the session", "starts what these name at the next login; ssh lets in who is listed and runs what its configuration says", []string{
			".config/autostart",
			".config/systemd",
			".ssh",
		}},
		{"debuggers", "run the commands in these on starting in the folder", []string{
			".gdbinit",
			".lldbinit",
		}},
	}
}

// gitFile is a name that is harmless as a directory and a pointer to another
// repository's hooks and config as anything else. In a list it means the latter.
const gitFile = ".git"

// ManifestName is the one name that no list leaves out: whoever writes it says
// what the app may do.
const ManifestName = "berth.yml"

// HostExecutedNames returns the names of the default list.
func HostExecutedNames() (names []string) {
	for _, g := range DefaultHostExecuted() {
		names = append(names, g.Names...)
	}
	return names
}

// maxHostExecuted bounds a list; each name costs time at every lookup.
const maxHostExecuted = 512

// CheckHostExecuted says why a name can not be in a list of such names.
func CheckHostExecuted(name string) error {
	parts := strings.Split(name, "/")
	switch {
	case name == "" || len(name) > 255 || path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0):
		return fmt.Errorf("%q is not a clean relative name", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("%q has characters that are not of ASCII: file systems differ in which of those are the same", name)
	case slices.Contains(parts, ".."), name == ".":
		return fmt.Errorf("%q does not stay in the folder", name)
	case strings.Trim(parts[0], "*?") == "":
		return fmt.Errorf("%q covers every name", name)
	case parts[len(parts)-1] == "**":
		return fmt.Errorf("%q ends with **: what is below a name is covered anyway", name)
	}
	for i, p := range parts {
		if _, err := path.Match(p, ""); err != nil || p == "**" && i > 0 && parts[i-1] == "**" {
			return fmt.Errorf("%q is not a pattern", name)
		}
	}
	return nil
}

// WithoutNames returns list without the names that are allowed, which the manifest
// never is: no app says what it may do. It is not nil.
func WithoutNames(list, allowed []string) []string {
	left := []string{}
	for _, name := range list {
		if name == ManifestName || !slices.ContainsFunc(allowed, func(a string) bool { return fold(a) == fold(name) }) {
			left = append(left, name)
		}
	}
	return left
}

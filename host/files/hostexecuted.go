package files

// hostExecuted are the names that programs of the host run, or take commands
// from, without being told to: on entering the folder, opening it in an
// editor, or at a git command. A guest that writes one has left its sandbox at
// the user's next keystroke, so they are read-only for it (Options.AllowHostExecuted).
//
// A pattern matches at any depth, without case, and covers what is below it.
// "*" stands for part of a name, "**" for any number of names.
//
// What is not here: what a user runs by naming it (Makefile, package.json),
// and instructions to agents (AGENTS.md, CLAUDE.md), which are text.
var hostExecuted = []string{
	// git
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
	".gitconfig",
	".config/git",
	".githooks",
	".husky",
	".lefthook",
	"lefthook.yml",
	".lefthook.yml",
	".pre-commit-config.yaml",

	// agents and their tool servers
	"berth.yml", // its build command runs on the host, and it says what an app may touch
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

	// editors
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

	// shells, environments, debuggers
	".envrc",
	".mise.toml",
	"mise.toml",
	".mise",
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
	".config/autostart",
	".config/systemd",
	".ssh",
	".gdbinit",
	".lldbinit",
}

// gitFile is a name that is harmless as a directory and a pointer to another
// repository's hooks and config as anything else.
const gitFile = ".git"

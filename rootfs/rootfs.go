// Package rootfs owns what is in the root filesystem: the u-root commands, the
// programs and apps of this module, static files, links and mount points.
// Everything belongs to uid 0 and gid 0; folders and programs have mode 0755,
// other files 0644.
package rootfs

import (
	"embed"
	"io/fs"
)

// CommandPrefix is the import path below which Commands are found.
const CommandPrefix = "github.com/u-root/u-root/cmds/core/"

// CommandTags are the build tags of the busybox: gosh without its line editor,
// which would bring a terminal UI framework along.
const CommandTags = "goshsmall"

// Commands returns the u-root commands in the busybox /bin/bb. They are listed
// one by one: u-root has an init of its own, and much that a guest without
// network, modules or firmware has no use for.
func Commands() []string {
	return []string{
		"base64", "basename", "cat", "chmod", "cmp", "cp", "date", "dd", "df",
		"dirname", "dmesg", "du", "echo", "false", "find", "free", "gosh",
		"grep", "head", "hexdump", "hostname", "id", "kill", "ln", "ls", "lsfd",
		"mkdir", "mktemp", "mount", "mv", "netstat", "pidof", "printenv", "ps",
		"pwd", "readlink", "realpath", "rm", "seq", "shasum", "sleep", "sort",
		"strings", "stty", "sync", "tail", "tar", "tee", "time", "timeout",
		"touch", "tr", "true", "truncate", "tty", "umount", "uname", "uniq",
		"uptime", "wc", "which", "xargs", "yes",
	}
}

// Program is a static binary of its own, outside the busybox.
type Program struct {
	Package string // folder in the module
	Path    string // absolute path in the root
}

// Programs returns PID 1 and the enforcer: separate binaries, so that nothing
// that a command depends on runs in them.
func Programs() []Program {
	return []Program{
		{Package: "init/cmd/init", Path: "/sbin/init"},
		{Package: "init/cmd/agent-init", Path: "/sbin/agent-init"},
	}
}

// AppsDir holds one folder for each app that an image's recipe names:
// /apps/<name>/{berth.yml,<name>}, compiled from apps/<name> of this module.
const AppsDir = "/apps"

// Manifest is the name of an app's manifest in its folder.
const Manifest = "berth.yml"

// SeccompDir holds one compiled filter, <class>.bpf, for each class of app.
const SeccompDir = "/lib/berth/seccomp"

// Dirs returns the folders that nothing is put into at build time: mount points.
func Dirs() []string {
	return []string{"/dev", "/proc", "/run", "/sys", "/tmp"}
}

// Link is a symbolic link.
type Link struct {
	Path   string
	Target string
}

// Links returns the links besides those of the busybox. The account files exist
// once, below /usr/share/berth/etc, which is also what an app gets as its /etc.
func Links() []Link {
	return []Link{
		{Path: "/bin/sh", Target: "gosh"},
		{Path: "/etc/group", Target: "../usr/share/berth/etc/group"},
		{Path: "/etc/hosts", Target: "../usr/share/berth/etc/hosts"},
		{Path: "/etc/nsswitch.conf", Target: "../usr/share/berth/etc/nsswitch.conf"},
		{Path: "/etc/passwd", Target: "../usr/share/berth/etc/passwd"},
	}
}

//go:embed files
var files embed.FS

// Files returns the static files, by their path in the root without the slash.
func Files() (fs.FS, error) {
	return fs.Sub(files, "files")
}

package worklayer

import "slices"

// posix is what every layer has: shells, tools, git, Python and SQLite.
var posix = Options{
	Packages: []string{"bash", "dash", "coreutils", "sed", "grep", "findutils", "diffutils", "gzip", "tar", "git", "python3", "sqlite3"},
	Without: []string{
		// of git: what speaks with hosts, and what is written in Perl
		"perl", "perl-base", "perl-modules-5.36", "libperl5.36", "liberror-perl", "git-man",
		"dpkg", "debconf", "libdb5.3", "libgdbm6", "libgdbm-compat4", "ca-certificates", "media-types", "base-files", "debianutils", "gcc-12-base",
	},
}

// Posix is the layer of shells, tools, git, Python and SQLite.
func Posix() Options {
	return Options{Packages: slices.Clone(posix.Packages), Without: slices.Clone(posix.Without)}
}

// Node is Posix with Node and npm.
func Node() Options {
	o := Posix()
	o.Packages = append(o.Packages, "nodejs", "npm")
	o.Without = append(o.Without, // of npm: what compiles, bundles and lints
		"webpack", "eslint", "terser", "handlebars", "node-babel7", "node-babel7-runtime", "node-core-js", "node-core-js-pure", "node-core-js-compat",
		"node-es-abstract", "node-caniuse-lite", "node-electron-to-chromium", "node-istanbul", "node-jest-worker", "node-memfs",
		"node-regenerate-unicode-properties", "node-webassemblyjs", "node-n3", "node-lodash", "node-terser",
		"libssl-dev", "libnode-dev", "libuv1-dev", "libc6-dev", "libjs-prettify", "openssl")
	return o
}

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// programs are of a distribution, as they are: see tools/worklayer.
func programs() []piece {
	return []piece{
		{"shell", shell}, {"git-existing", gitExisting}, {"git", git}, {"git-large", gitLarge}, {"sqlite", sqlite}, {"python", python}, {"node", node}, {"npm", npm},
	}
}

// there says whether a program is part of the app. Layers differ.
func there(name string) bool {
	_, err := os.Stat("/app/bin/" + name)
	return err == nil
}

// runner returns a function that runs commands in a folder and wants exit code
// 0, and the given text in what they print; "=" before it: exactly it.
func (w *world) runner(dir string, env ...string) func(want string, args ...string) error {
	home := w.path(".home")
	return func(want string, args ...string) error {
		if err := os.MkdirAll(home, 0o755); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(w)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/app/bin/"+args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append([]string{"PATH=/app/bin", "HOME=" + home, "LC_ALL=C.UTF-8", "TMPDIR=" + os.TempDir(),
			"GIT_AUTHOR_NAME=Worker", "GIT_AUTHOR_EMAIL=worker@example.invalid", "GIT_COMMITTER_NAME=Worker", "GIT_COMMITTER_EMAIL=worker@example.invalid"}, env...)
		out, err := cmd.CombinedOutput()
		got := string(out)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, short(got))
		}
		exact, isExact := strings.CutPrefix(want, "=")
		if isExact && strings.TrimSpace(got) != exact || !isExact && !strings.Contains(got, want) {
			return mismatch(strings.Join(args, " "), got, want)
		}
		return nil
	}
}

//go:embed scripts/work.sh
var shellScript string

//go:embed scripts/work.py
var pythonScript string

//go:embed scripts/work.js
var nodeScript string

func shell(w *world) error {
	shells := []string{"dash", "bash"}
	if w.brief() {
		shells = shells[1:]
	}
	for _, name := range shells {
		if !there(name) {
			return fmt.Errorf("the layer has no %s", name)
		}
		script := w.path(name + ".sh")
		if err := write(script, shellScript); err != nil {
			return err
		}
		if err := w.runner(w.dir)("shell work done", name, script, strconv.Itoa(w.many(100))); err != nil {
			return err
		}
	}
	return nil
}

// git works as people do, in repositories of a few files.
func git(w *world) error {
	top := w.runner(w.dir)
	in := w.runner(w.path("repo"))
	clone := w.runner(w.path("clone"))
	file := func(name, content string) error {
		if err := os.MkdirAll(filepath.Dir(w.path("repo", name)), 0o755); err != nil {
			return err
		}
		return write(w.path("repo", name), content)
	}
	if err := errors.Join(top("Initialized", "git", "init", "-b", "main", "repo"), file("a.txt", "one\n"), file("dir/b.txt", "two\n")); err != nil {
		return err
	}
	n := w.many(200)
	for i := range n {
		if err := file(fmt.Sprintf("many/%03d", i), strconv.Itoa(i)); err != nil {
			return err
		}
	}
	steps := [][]string{
		{"a.txt", "git", "status", "--short", "-uall"},
		{"", "git", "add", "-A"},
		{"root-commit", "git", "commit", "-m", "first"},
		{"=main", "git", "branch", "--show-current"},
		{"", "git", "checkout", "-q", "-b", "side"},
		{"", "git", "mv", "dir/b.txt", "moved.txt"},
		{"moved.txt", "git", "commit", "-m", "moved"},
		{"", "git", "checkout", "-q", "main"},
		{"", "git", "tag", "-a", "v1", "-m", "tagged"},
	}
	for _, s := range steps {
		if err := in(s[0], s[1:]...); err != nil {
			return err
		}
	}
	if err := file("a.txt", "one\nand more\n"); err != nil {
		return err
	}
	for _, s := range [][]string{
		{"+and more", "git", "diff"},
		{"Saved working directory", "git", "stash"},
		{"=", "git", "status", "--short"},
		{"Dropped", "git", "stash", "pop"},
		{"changed on main", "git", "commit", "-am", "changed on main"},
		{"Merge made", "git", "merge", "--no-edit", "side"},
		{"=two", "git", "show", "HEAD:moved.txt"},
		{"", "git", "checkout", "-q", "-b", "topic", "v1"},
		{"", "git", "rm", "-q", "many/000"},
		{"removed", "git", "commit", "-m", "removed"},
		{"Success", "git", "rebase", "main"},
		{"Preparing worktree", "git", "worktree", "add", "../tree", "side"},
		{"", "git", "worktree", "remove", "../tree"},
		{"", "git", "gc", "-q"},
		{"", "git", "fsck", "--strict"},
		{"removed", "git", "log", "--oneline", "--graph", "--all"},
		{"", "git", "blame", "a.txt"},
		{"a.txt", "git", "grep", "-l", "more"},
		{"", "git", "archive", "-o", "../all.tar", "HEAD"},
		{"", "git", "bundle", "create", "-q", "../all.bundle", "--all"},
	} {
		if err := in(s[0], s[1:]...); err != nil {
			return err
		}
	}
	if w.brief() {
		return top("", "git", "clone", "-q", "repo", "clone")
	}
	if err := errors.Join(top("", "git", "clone", "-q", "repo", "clone"), holds(w.path("clone/a.txt"), "one\nand more\n"),
		top("", "git", "clone", "-q", "--no-local", "--bare", "repo", "bare.git"), top("", "git", "clone", "-q", "all.bundle", "from-bundle"), os.Mkdir(w.path("out"), 0o755)); err != nil {
		return err
	}
	for _, s := range [][]string{
		{"", "git", "remote", "add", "bare", "../bare.git"},
		{"", "git", "checkout", "-q", "-b", "pushed"},
		{"", "git", "commit", "-q", "--allow-empty", "-m", "empty"},
		{"", "git", "push", "-q", "bare", "pushed"},
		{"", "git", "fetch", "-q", "--all"},
		{"bare/pushed", "git", "branch", "-r"},
		{"", "git", "config", "alias.st", "status --short"},
		{"=", "git", "st"},
		{"many/001", "tar", "-xvf", "../all.tar", "-C", "../out"},
		{"=", "git", "clean", "-fdx"},
		{"HEAD", "git", "reset", "-q", "--hard", "HEAD"},
	} {
		if s[1] == "git" && s[2] == "reset" {
			s[0] = ""
		}
		if err := clone(s[0], s[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// gitExisting works in a repository that the user made, in which what git takes
// commands from (.git/config, .git/hooks) can not be changed.
func gitExisting(w *world) error {
	if w.repo == "" {
		return errNotHere
	}
	in := w.runner(w.repo)
	name := filepath.Join(w.repo, "by-the-app.txt")
	if err := write(name, fmt.Sprint("work of ", filepath.Base(w.dir), "\n")); err != nil {
		return err
	}
	for _, s := range [][]string{
		{"by-the-app.txt", "git", "status", "--short"},
		{"", "git", "add", "-A"},
		{"+work of", "git", "diff", "--cached"},
		{"by the app", "git", "commit", "-m", "by the app"},
		{"", "git", "checkout", "-q", "-b", "side"},
		{"", "git", "rm", "-q", "by-the-app.txt"},
		{"removed", "git", "commit", "-m", "removed"},
		{"", "git", "checkout", "-q", "-"},
		{"Fast-forward", "git", "merge", "side"},
		{"", "git", "branch", "-d", "side"},
		{"=", "git", "status", "--short"},
	} {
		if err := in(s[0], s[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// gitLarge is a repository of 2,000 files.
func gitLarge(w *world) error {
	in := w.runner(w.path("repo"))
	if err := w.runner(w.dir)("", "git", "init", "-q", "-b", "main", "repo"); err != nil {
		return err
	}
	n := w.many(2000)
	for i := range n {
		name := w.path("repo", fmt.Sprintf("d%02d/e%d", i%40, i%3), fmt.Sprintf("f%04d.txt", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), write(name, strings.Repeat(fmt.Sprintln("line of", i), 20))); err != nil {
			return err
		}
	}
	for _, s := range [][]string{
		{"", "git", "add", "."},
		{fmt.Sprint(n, " files changed"), "git", "commit", "-m", "all"},
		{"=", "git", "status", "--short"},
		{"", "git", "mv", "d00", "renamed"},
		{"", "git", "commit", "-q", "-m", "renamed"},
		{"", "git", "checkout", "-q", "HEAD~1"},
		{"", "git", "checkout", "-q", "main"},
		{"", "git", "gc", "-q", "--aggressive", "--prune=now"},
		{"", "git", "fsck", "--strict"},
		{"", "git", "clone", "-q", ".", "../clone"},
		{"=", "git", "-C", "../clone", "status", "--short"},
	} {
		if err := in(s[0], s[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func sqlite(w *world) error {
	run := w.runner(w.dir)
	for _, mode := range []string{"delete", "truncate", "persist", "memory", "wal"} {
		if shared(w.dir) && mode == "wal" {
			continue // SQLite's own advice: not on a network file system
		}
		db := mode + ".db"
		sql := fmt.Sprintf(`create table t(i integer primary key, s text);
			begin; with recursive n(i) as (values(1) union all select i+1 from n where i < %[1]d) insert into t select i, 'row ' || i from n; commit;
			create index x on t(s); delete from t where i %% 7 = 0; vacuum; pragma integrity_check;`, w.many(5000))
		if err := errors.Join(run(mode, "sqlite3", db, "pragma journal_mode="+mode+"; create table first(x);"),
			run("ok", "sqlite3", db, sql), run("row 1", "sqlite3", db, "select s from t where i = 1")); err != nil {
			return fmt.Errorf("journal %s: %w", mode, err)
		}
	}
	return nil
}

// python runs a script that uses much of the standard library.
func python(w *world) error {
	if err := write(w.path("work.py"), pythonScript); err != nil {
		return err
	}
	times, unixFlag := w.many(100), "0"
	if w.brief() {
		times = 1
	}
	if w.unix {
		unixFlag = "1"
	}
	return w.runner(w.dir)("python work done", "python3", "work.py", strconv.Itoa(times), strconv.Itoa(portTCP), unixFlag)
}

func node(w *world) error {
	if !there("node") {
		return errNotHere
	}
	if err := write(w.path("work.js"), nodeScript); err != nil {
		return err
	}
	return w.runner(w.dir)("node work done", "node", "work.js", strconv.Itoa(w.many(100)), strconv.Itoa(portTCP))
}

// npm packs and installs packages that are folders, archives and links.
func npm(w *world) error {
	if !there("npm") {
		return errNotHere
	}
	for name, content := range map[string]string{
		"lib/package.json":    `{"name":"lib","version":"1.2.3","main":"index.js","bin":{"lib-tool":"tool.js"},"dependencies":{"leaf":"file:../leaf"}}`,
		"lib/index.js":        `module.exports = "lib with " + require("leaf")`,
		"lib/tool.js":         "#!/app/bin/node\nconsole.log('tool', __dirname)",
		"leaf/package.json":   `{"name":"leaf","version":"0.0.1"}`,
		"leaf/index.js":       `module.exports = "leaf"`,
		"app/package.json":    `{"name":"app","version":"1.0.0","dependencies":{"packed":"file:../packed-3.0.0.tgz","leaf":"file:../leaf"},"scripts":{"start":"node main.js","pretest":"echo before","test":"node -e 'console.log(require(\"packed\"))'"}}`,
		"app/main.js":         `console.log("started with", require("leaf"), require("packed"))`,
		"packed/package.json": `{"name":"packed","version":"3.0.0"}`,
		"packed/index.js":     `module.exports = "packed"`,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(w.path(name)), 0o755), write(w.path(name), content)); err != nil {
			return err
		}
	}
	for i := range w.many(500) {
		if err := write(w.path("packed", fmt.Sprintf("f%03d.js", i)), "module.exports = 1"); err != nil {
			return err
		}
	}
	env := []string{"npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false", "npm_config_offline=true", "npm_config_cache=" + w.path(".npm")}
	top, app := w.runner(w.dir, env...), w.runner(w.path("app"), env...)
	for _, s := range []struct {
		run  func(string, ...string) error
		args []string
	}{
		{top, []string{"packed-3.0.0.tgz", "npm", "pack", "./packed"}},
		{app, []string{"added 2 packages", "npm", "install"}},
		{app, []string{"packed@3.0.0", "npm", "ls"}},
		{app, []string{"started with leaf packed", "npm", "start"}},
		{app, []string{"packed", "npm", "test"}},
		{app, []string{"added 2 packages", "npm", "ci"}},
		{app, []string{"removed 1 package", "npm", "uninstall", "packed"}},
	} {
		if err := s.run(s.args[0], s.args[1:]...); err != nil {
			return err
		}
	}
	if _, err := os.Stat(w.path("app/node_modules/packed")); !errors.Is(err, fs.ErrNotExist) {
		return mismatch("uninstalled package", err, fs.ErrNotExist)
	}
	return nil
}

//go:build linux

package watch

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// seen collects what a watcher tells.
type seen struct {
	mu   sync.Mutex
	list []string
}

func (s *seen) add(f Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, string(f.What)+" "+f.Place)
}

// wanted is a small list: .envrc, and config below .git.
func wanted(place string, _ bool) bool {
	for at := place; at != "."; at = path.Dir(at) {
		if path.Base(at) == ".envrc" || path.Base(at) == "config" && path.Base(path.Dir(at)) == ".git" {
			return true
		}
	}
	return false
}

func start(t *testing.T, o Options) (*Watcher, func(want ...string)) {
	t.Helper()
	var s seen
	o.Wanted, o.Found = wanted, s.add
	w, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, func(want ...string) {
		t.Helper()
		w.Drain()
		s.mu.Lock()
		defer s.mu.Unlock()
		slices.Sort(s.list)
		if slices.Sort(want); !slices.Equal(s.list, want) {
			t.Errorf("told %q, want %q", s.list, want)
		}
		s.list = nil
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func put(t *testing.T, name string) {
	t.Helper()
	do(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("x"), 0o644))
}

// Every way in which a name comes into being is told, once, and before Drain
// returns; what is not wanted is not.
func TestMade(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("old/.envrc"))
	put(t, in("prepared/config"))
	_, told := start(t, Options{Root: dir})
	told() // what was there is not news
	put(t, in("file"))
	told()
	put(t, in(".envrc"))
	told("made .envrc")
	put(t, in(".envrc")) // written again
	told()
	put(t, in("a/b/c/.git/config")) // folders that nobody watches yet
	told("made a/b/c/.git/config")
	do(t, os.Rename(in("prepared"), in(".git"))) // into place
	told("made .git/config")
	do(t, os.Symlink("/etc/passwd", in("a/.envrc")), os.Link(in("file"), in("a/b/.envrc")))
	told("made a/.envrc", "made a/b/.envrc")
	do(t, os.Mkdir(in("d"), 0o755), os.Symlink("d", in("link")), os.Mkdir(in("link/.git"), 0o755))
	put(t, in("link/.git/config")) // by way of a link
	told("made d/.git/config")
	do(t, os.Rename(in("d"), in("e"))) // what is below has another place now
	told("made e/.git/config")
	put(t, in("e/.envrc"))
	told("made e/.envrc")
	do(t, unix.Mkfifo(in("pipe"), 0o644))
	told("fifo pipe")
	do(t, os.RemoveAll(in("e")))
	put(t, in("e/.envrc"))
	told("made e/.envrc")
	do(t, os.WriteFile(in("e/gone"), nil, 0o644), os.Rename(in("e/gone"), in("e/x")), os.Remove(in("e/.envrc")))
	do(t, os.WriteFile(in("e/.envrc"), nil, 0o644), os.Remove(in("e/.envrc"))) // gone before anybody looked
	told("made e/.envrc")
}

// What is made again is told again: file systems give a new file the number of
// one that was deleted, also where its folder was moved in between.
func TestMadeAgain(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	number := func(name string) uint64 {
		var st unix.Stat_t
		do(t, unix.Lstat(in(name), &st))
		return st.Ino
	}
	_, told := start(t, Options{Root: dir})
	reused := 0
	for range 50 {
		put(t, in("d/.envrc"))
		told("made d/.envrc")
		first := number("d/.envrc")
		do(t, os.Remove(in("d/.envrc")))
		put(t, in("d/.envrc"))
		told("made d/.envrc")
		do(t, os.Rename(in("d"), in("e")))
		told("made e/.envrc")
		do(t, os.Mkdir(in("d"), 0o755), os.Remove(in("e/.envrc")))
		put(t, in("d/.envrc"))
		told("made d/.envrc")
		if number("d/.envrc") == first {
			reused++
		}
		do(t, os.RemoveAll(in("d")), os.RemoveAll(in("e")))
	}
	t.Logf("%d of 50 had a number again", reused)
}

// A covered place that is another file is the host's doing, and no longer
// covered; with its folder moved it is the same.
func TestCovered(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("r/.git/config"))
	put(t, in("r/.git/lock"))
	_, told := start(t, Options{Root: dir, Covered: []string{"r/.git/config"}})
	do(t, os.Rename(in("r"), in("s")))
	told()
	do(t, os.Rename(in("s"), in("r")))
	told()
	do(t, os.Rename(in("r/.git/lock"), in("r/.git/config")))
	told("replaced r/.git/config")
}

// When the kernel drops events, all is looked at again.
func TestOverflow(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	do(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	do(t, err)
	dir := t.TempDir()
	w, told := start(t, Options{Root: dir})
	w.mu.Lock() // nobody reads
	for i := range limit/2 + 10 {
		name := filepath.Join(dir, strconv.Itoa(i))
		do(t, os.Mkdir(name, 0o755), os.Remove(name))
	}
	for i := range limit {
		name := filepath.Join(dir, strconv.Itoa(i%2))
		do(t, os.Mkdir(name, 0o755), os.Remove(name))
	}
	put(t, filepath.Join(dir, "x/.envrc"))
	w.mu.Unlock()
	told("lost ", "made x/.envrc")
	put(t, filepath.Join(dir, "x/y/.envrc")) // control: it goes on
	told("made x/y/.envrc")
}

// What is not watched is said.
func TestTooMany(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a/b/f"))
	w, told := start(t, Options{Root: dir, MaxFolders: 2})
	if w.Missed() == "" {
		t.Error("nothing was said to be missed")
	}
	put(t, filepath.Join(dir, ".envrc")) // control
	told("made .envrc")
	w, _ = start(t, Options{Root: dir, MaxFolders: 3})
	if missed := w.Missed(); missed != "" {
		t.Error(missed)
	}
}

// Links lead nowhere.
func TestLinksAreNotFollowed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	do(t, os.Symlink(other, filepath.Join(dir, "out")))
	_, told := start(t, Options{Root: dir})
	put(t, filepath.Join(other, ".envrc"))
	do(t, os.Symlink(other, filepath.Join(dir, "out2")))
	put(t, filepath.Join(other, "n/.envrc"))
	told()
}

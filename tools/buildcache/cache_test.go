package buildcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthos/berth/host/hint"
)

func open(t *testing.T) *Cache {
	t.Helper()
	c, err := Open(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// builder is a build that counts how often it ran.
type builder struct{ runs atomic.Int32 }

func (b *builder) job() Job {
	var h Hash
	h.Add("source", "1")
	return Job{Kind: "thing", Key: h.Sum(), Build: func(_ context.Context, dir string) error {
		b.runs.Add(1)
		if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "sub", "b"), []byte("b"), 0o644); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o644)
	}}
}

func do(t *testing.T, c *Cache, j Job) Result {
	t.Helper()
	r, err := c.Do(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSecondTimeIsAHit(t *testing.T) {
	c, b := open(t), &builder{}
	first, second := do(t, c, b.job()), do(t, c, b.job())
	if first.Hit || !second.Hit || first.Dir != second.Dir || b.runs.Load() != 1 {
		t.Errorf("first %+v, second %+v, %d builds", first, second, b.runs.Load())
	}
	other := b.job()
	other.Key = strings.Repeat("0", 64)
	if r := do(t, c, other); r.Hit {
		t.Error("another key was a hit")
	}
}

// Each of these is a result that is no longer what was built. It must be built
// again and then be whole.
func TestDamagedResultIsBuiltAgain(t *testing.T) {
	damage := map[string]func(dir string) error{
		"changed":   func(d string) error { return os.WriteFile(filepath.Join(d, "sub", "b"), []byte("c"), 0o644) },
		"truncated": func(d string) error { return os.Truncate(filepath.Join(d, "a"), 0) },
		"removed":   func(d string) error { return os.Remove(filepath.Join(d, "a")) },
		"added":     func(d string) error { return os.WriteFile(filepath.Join(d, "c"), nil, 0o644) },
		"symlink": func(d string) error {
			os.Remove(filepath.Join(d, "a"))
			return os.Symlink("sub/b", filepath.Join(d, "a"))
		},
		"no record":      func(d string) error { return os.Remove(filepath.Join(d, recordName)) },
		"damaged record": func(d string) error { return os.WriteFile(filepath.Join(d, recordName), []byte("{"), 0o644) },
		"empty record":   func(d string) error { return os.WriteFile(filepath.Join(d, recordName), []byte("{}"), 0o644) },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			c, b := open(t), &builder{}
			r := do(t, c, b.job())
			if err := f(r.Dir); err != nil {
				t.Fatal(err)
			}
			var notices []string
			j := b.job()
			j.Notice = func(s string) { notices = append(notices, s) }
			if r := do(t, c, j); r.Hit || b.runs.Load() != 2 {
				t.Fatalf("hit %v after %d builds", r.Hit, b.runs.Load())
			}
			if len(notices) != 1 || !strings.Contains(notices[0], "again") {
				t.Errorf("notices %q", notices)
			}
			if r := do(t, c, b.job()); !r.Hit {
				t.Error("the new result is no hit")
			}
		})
	}
}

// A build that fails, or leaves nothing, leaves no result and nothing behind.
func TestHalfBuildNeverCounts(t *testing.T) {
	c, b := open(t), &builder{}
	broken := errors.New("broken")
	j := b.job()
	j.Build = func(_ context.Context, dir string) error {
		os.WriteFile(filepath.Join(dir, "a"), []byte("half"), 0o644)
		return broken
	}
	if _, err := c.Do(t.Context(), j); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	j.Build = func(context.Context, string) error { return nil }
	if _, err := c.Do(t.Context(), j); err == nil {
		t.Fatal("a build without files was kept")
	}
	left, err := os.ReadDir(filepath.Join(c.dir, unfinished))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	// What a killed process left is cleared, not taken.
	stale := filepath.Join(c.dir, unfinished, j.Kind+"-"+j.Key)
	os.MkdirAll(filepath.Join(stale, "sub"), 0o755)
	if r := do(t, c, b.job()); r.Hit || b.runs.Load() != 1 {
		t.Errorf("hit %v after %d builds", r.Hit, b.runs.Load())
	}
}

// Two caches on one folder stand for two processes: flock belongs to the open
// file, so they exclude each other as processes would.
func TestConcurrentBuildersShareOneBuild(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := &builder{}
	started, release := make(chan struct{}), make(chan struct{})
	slow := b.job()
	build := slow.Build
	slow.Build = func(ctx context.Context, d string) error {
		close(started)
		<-release
		return build(ctx, d)
	}
	var wg sync.WaitGroup
	run := func(j Job) {
		c, err := Open(dir)
		if err != nil {
			t.Error(err)
			return
		}
		wg.Go(func() {
			if _, err := c.Do(t.Context(), j); err != nil {
				t.Error(err)
			}
		})
	}
	run(slow)
	<-started
	waiting := make(chan struct{}, 3)
	for range 3 {
		j := b.job()
		j.Notice = func(string) { waiting <- struct{}{} }
		run(j)
	}
	for range 3 {
		<-waiting
	}
	close(release)
	wg.Wait()
	if n := b.runs.Load(); n != 1 {
		t.Errorf("%d builds, want 1", n)
	}
}

func TestWaitingCanBeCancelled(t *testing.T) {
	c, b := open(t), &builder{}
	j := b.job()
	unlock, err := c.Lock(t.Context(), j.Kind+"-"+j.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	j.Notice = func(string) { cancel() }
	if _, err := c.Do(ctx, j); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestDir(t *testing.T) {
	cases := []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"BERTH_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"},
		{map[string]string{"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/berth"},
		{map[string]string{"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/berth"},
		{map[string]string{"HOME": "/h"}, "/h/.cache/berth"},
		{nil, ""},
	}
	for _, c := range cases {
		got, err := Dir(func(k string) string { return c.env[k] })
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v: got %q, %v", c.env, got, err)
		}
	}
}

func TestUnusableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "cache")); err == nil || !strings.HasPrefix(err.Error(), "cannot use the build cache "+file) {
		t.Errorf("got %v", err)
	}
}

// TestFolderOfOthers: whoever may write to the cache decides what is in images.
func TestFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "every user may write to it") || hint.Of(err) == "" {
		t.Errorf("a folder that every user may write to: %v", err)
	}
	if os.Geteuid() != 0 {
		return // only root can give a folder away
	}
	foreign := t.TempDir()
	if err := os.Chown(foreign, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(foreign); err == nil || !strings.Contains(err.Error(), "it belongs to uid 4242") {
		t.Errorf("another user's folder: %v", err)
	}
	if files, err := os.ReadDir(foreign); err != nil || len(files) > 0 {
		t.Errorf("something was made there: %v, %v", files, err)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	c, b := open(t), &builder{}
	for _, change := range []func(*Job){
		func(j *Job) { j.Kind = "../x" },
		func(j *Job) { j.Key = "x" },
	} {
		j := b.job()
		change(&j)
		if _, err := c.Do(t.Context(), j); err == nil {
			t.Errorf("%q %q was accepted", j.Kind, j.Key)
		}
	}
}

func TestKeysDoNotRunTogether(t *testing.T) {
	var a, b Hash
	a.Add("x", "yz")
	b.Add("xy", "z")
	if a.Sum() == b.Sum() {
		t.Error("two lists of inputs have one key")
	}
}

// Package buildcache owns the folder outside every checkout in which results of
// builds are kept under the hash of everything that went into them.
package buildcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/berthos/berth/host/hint"
)

// A Cache is one such folder. It may be shared by any number of processes.
type Cache struct{ dir string }

// A Result is a folder of files made by one build.
type Result struct {
	Dir string
	// Hit is true when an earlier build's result was found and verified.
	Hit bool
}

// A Job is one build whose result can be kept.
type Job struct {
	// Kind is a short name for people, such as "kernel-x86_64".
	Kind string
	// Key is the hash of everything the result depends on; see Hash.
	Key string
	// Build makes regular files in dir, an empty folder, and nothing elsewhere.
	Build func(ctx context.Context, dir string) error
	// Notice, if not nil, is told what is waited for or thrown away.
	Notice func(message string)
}

// Dir is the cache's place: $BERTH_CACHE, else $XDG_CACHE_HOME/berth, else
// ~/.cache/berth.
func Dir(getenv func(string) string) (string, error) {
	if d := getenv("BERTH_CACHE"); d != "" {
		return filepath.Abs(d)
	}
	// The specification of XDG says that a relative path is to be ignored.
	if d := getenv("XDG_CACHE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "berth"), nil
	}
	if d := getenv("HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, ".cache", "berth"), nil
	}
	return "", errors.New("cannot place the build cache: none of BERTH_CACHE, XDG_CACHE_HOME and HOME is set")
}

// advice is for a cache that cannot be used.
const advice = "name a folder of your own: BERTH_CACHE=DIR"

// Open prepares a cache in dir. What is in it becomes part of images, so it must
// be nobody else's: whoever may write there can also write what its records say.
func Open(dir string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, hint.Errorf(advice, "cannot use the build cache %s: %w", dir, err)
	}
	if err := own(dir); err != nil {
		return nil, hint.Errorf(advice, "cannot trust the build cache %s: %w", dir, err)
	}
	for _, sub := range []string{locks, unfinished} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, hint.Errorf(advice, "cannot use the build cache %s: %w", dir, err)
		}
	}
	probe, err := os.CreateTemp(filepath.Join(dir, unfinished), "probe-")
	if err != nil {
		return nil, hint.Errorf(advice, "cannot use the build cache %s: %w", dir, err)
	}
	probe.Close()
	return &Cache{dir: dir}, os.Remove(probe.Name())
}

// own refuses a folder of another user (root's is trusted), and one that every
// user may write to.
func own(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if me := uint32(os.Geteuid()); ok && st.Uid != me && st.Uid != 0 {
		return fmt.Errorf("it belongs to uid %d, and you are uid %d", st.Uid, me)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return errors.New("every user may write to it")
	}
	return nil
}

// Folders of a cache beside the results, which are in <kind>/<key>.
const (
	locks      = "locks"
	unfinished = "unfinished"
	downloads  = "downloads"
)

// Download is where a verified download called name belongs. The caller holds
// the lock of that name while it writes.
func (c *Cache) Download(name string) string {
	return filepath.Join(c.dir, downloads, name)
}

var (
	reKind = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	reKey  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Do returns the kept result of a job or builds it. Of several callers, in
// whatever processes, one builds and the others wait for it. A result counts
// only when it is complete: it is made elsewhere, recorded with the digest of
// every file, and renamed into place; it is verified each time it is used, and
// built again when a file is not what was recorded.
func (c *Cache) Do(ctx context.Context, job Job) (Result, error) {
	if !reKind.MatchString(job.Kind) || !reKey.MatchString(job.Key) {
		return Result{}, fmt.Errorf("cannot cache %q under key %q: not a name and a sha256", job.Kind, job.Key)
	}
	if job.Notice == nil {
		job.Notice = func(string) {}
	}
	name := job.Kind + "-" + job.Key
	unlock, err := c.Lock(ctx, name, func() {
		job.Notice("waiting for another build of " + job.Kind)
	})
	if err != nil {
		return Result{}, err
	}
	defer unlock()

	final := filepath.Join(c.dir, job.Kind, job.Key)
	switch err := verify(final); {
	case err == nil:
		return Result{Dir: final, Hit: true}, nil
	case !errors.Is(err, os.ErrNotExist):
		job.Notice(fmt.Sprintf("building %s again: %v", job.Kind, err))
	}
	if err := c.build(ctx, job, name, final); err != nil {
		return Result{}, err
	}
	return Result{Dir: final}, nil
}

// build runs with the lock of name held, so what lies under that name among the
// unfinished ones was left by a process that is gone.
func (c *Cache) build(ctx context.Context, job Job, name, final string) error {
	tmp := filepath.Join(c.dir, unfinished, name)
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("cannot clear the build cache: %w", err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return fmt.Errorf("cannot use the build cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := job.Build(ctx, tmp); err != nil {
		return err
	}
	if err := record(tmp); err != nil {
		return fmt.Errorf("cannot record the build of %s: %w", job.Kind, err)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return fmt.Errorf("cannot use the build cache: %w", err)
	}
	if err := os.RemoveAll(final); err != nil {
		return fmt.Errorf("cannot replace a damaged build of %s: %w", job.Kind, err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return fmt.Errorf("cannot keep the build of %s: %w", job.Kind, err)
	}
	return nil
}

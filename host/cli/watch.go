package cli

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/berthos/berth/init/policy"
)

// mayReload reports whether the app's files are out of its own reach. An app
// that can write its manifest or its code must not have them built and started
// on the host: the manifest says what to allow, and what to run for a build.
func (r *devRun) mayReload(dir string) bool {
	app, err := filepath.EvalSymlinks(dir)
	if err == nil {
		app, err = filepath.Abs(app)
	}
	if err != nil {
		r.say("note: reload on save is off: %v", err)
		return false
	}
	for _, s := range r.m.State().Shares {
		if !s.ReadOnly && (policy.Below(app, s.HostDir) || policy.Below(s.HostDir, app)) {
			r.say("note: reload on save is off, since the app may write its own files: %s is shared with it", visible(s.HostDir))
			return false
		}
	}
	return true
}

// settle is how long a folder must be quiet before it is built again: editors
// write a file in several steps.
const settle = 100 * time.Millisecond

// watch calls changed after the files below dir have changed, until ctx ends.
// Hidden folders and node_modules are left out.
func watch(ctx context.Context, dir string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", dir, err)
	}
	defer w.Close()
	if err := watchTree(w, dir); err != nil {
		return err
	}
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			return fmt.Errorf("cannot watch %s: %w", dir, err)
		case e := <-w.Events:
			if e.Op == fsnotify.Chmod || hidden(filepath.Base(e.Name)) {
				continue
			}
			if e.Has(fsnotify.Create) {
				watchTree(w, e.Name) // a file, or gone already: nothing to add
			}
			quiet = time.After(settle)
		case <-quiet:
			quiet = nil
			changed()
		}
	}
}

func watchTree(w *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		if p != dir && hidden(d.Name()) {
			return fs.SkipDir
		}
		if err := w.Add(p); err != nil {
			return fmt.Errorf("cannot watch %s: %w", p, err)
		}
		return nil
	})
}

// hidden names what a build does not read: editors' swap files, .git, …
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || name == "node_modules"
}

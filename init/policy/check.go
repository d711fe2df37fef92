package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Check reports whether p is one that the compiler could have made: what the
// enforcer relies on, whoever sent it.
func (p Policy) Check() error {
	if err := p.check(); err != nil {
		return fmt.Errorf("cannot use policy of app %q: %w", p.App, err)
	}
	return nil
}

func (p Policy) check() error {
	switch {
	case p.Schema != Schema:
		return fmt.Errorf("schema %d, this build reads %d", p.Schema, Schema)
	case notAnExport(p.App):
		return errors.New("the app has no usable name")
	case p.Limits.CPUMilli <= 0 || p.Limits.MemoryMB <= 0 || p.Limits.Pids <= 0:
		return errors.New("a limit is missing")
	case len(p.Argv) == 0 || !Below(p.Argv[0], "/app") || path.Clean(p.Argv[0]) != p.Argv[0] || p.Argv[0] == "/app":
		return errors.New("its program does not lie below /app")
	}
	if err := p.Rights.check(); err != nil {
		return err
	}
	return p.checkWorkers()
}

func (r Rights) check() error {
	switch {
	case r.Class != r.classFor():
		return fmt.Errorf("its seccomp profile is %q, its rights ask for %q", r.Class, r.classFor())
	case !ascending(r.Connect) || !ascending(r.Bind) || slices.Contains(r.Connect, 0) || slices.Contains(r.Bind, 0):
		return errors.New("its ports are out of order")
	case !ascending(r.Secrets) || slices.ContainsFunc(r.Secrets, notAName):
		return errors.New("its secrets are out of order")
	case !ascending(r.HostExecuted) || slices.ContainsFunc(r.HostExecuted, notRelative):
		return errors.New("its host-executed names are out of order")
	}
	for i, g := range r.Paths {
		switch {
		case g.Access != Read && g.Access != Write:
			return fmt.Errorf("unknown access %q", g.Access)
		case !path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path || g.Path == "/" || strings.ContainsRune(g.Path, 0):
			return fmt.Errorf("the path %q is not clean", g.Path)
		case i > 0 && r.Paths[i-1].Path >= g.Path:
			return errors.New("its paths are out of order")
		}
	}
	for i, c := range r.Invoke {
		switch {
		case notAnExport(c.App):
			return fmt.Errorf("the app %q to call has no usable name", c.App)
		case i > 0 && r.Invoke[i-1].App >= c.App || !ascending(c.Exports) || slices.ContainsFunc(c.Exports, notAnExport):
			return errors.New("the apps that it may call are out of order")
		}
	}
	return nil
}

// checkWorkers makes sure that workers only narrow, and that each export has
// one process.
func (p Policy) checkWorkers() error {
	if !ascending(p.Exports) || slices.ContainsFunc(p.Exports, notAnExport) {
		return errors.New("its exports are out of order")
	}
	if !ascending(p.AllExports()) {
		return errors.New("an export has two processes")
	}
	for i, w := range p.Workers {
		switch {
		case !ascending(w.Exports) || slices.ContainsFunc(w.Exports, notAnExport):
			return fmt.Errorf("the exports of its worker %q are out of order", w.Name)
		case len(w.Exports) == 0 || w.Name != w.Exports[0]:
			return fmt.Errorf("its worker %q is not named after its first export", w.Name)
		case i > 0 && p.Workers[i-1].Name >= w.Name:
			return errors.New("its workers are out of order")
		}
		if err := w.Rights.check(); err != nil {
			return fmt.Errorf("its worker %q: %w", w.Name, err)
		}
		if more := w.Rights.Beyond(p.Rights); more != "" {
			return fmt.Errorf("its worker %q may do more than the app: %s", w.Name, more)
		}
	}
	return nil
}

// ascending reports whether list is sorted and nothing stands in it twice.
func ascending[T cmp.Ordered](list []T) bool {
	for i := 1; i < len(list); i++ {
		if list[i-1] >= list[i] {
			return false
		}
	}
	return true
}

// notAnExport reports what cannot name an export, and so a process.
func notAnExport(s string) bool { return s == "" || strings.ContainsAny(s, "/.\x00\n") }

// notAName reports what cannot name an environment variable.
func notAName(s string) bool { return s == "" || strings.ContainsAny(s, "=\x00") }

// notRelative reports what is not a clean relative path that stays below where
// it starts.
func notRelative(s string) bool {
	return s == "" || s == "." || path.Clean(s) != s || path.IsAbs(s) || s == ".." || strings.HasPrefix(s, "../") || strings.ContainsRune(s, 0)
}

package policy

import (
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
	case p.App == "" || strings.ContainsAny(p.App, "/."):
		return errors.New("the app has no usable name")
	case p.Limits.CPUMilli <= 0 || p.Limits.MemoryMB <= 0 || p.Limits.Pids <= 0:
		return errors.New("a limit is missing")
	case p.Class == "":
		return errors.New("it names no seccomp profile")
	case len(p.Argv) == 0 || !Below(p.Argv[0], "/app") || path.Clean(p.Argv[0]) != p.Argv[0] || p.Argv[0] == "/app":
		return errors.New("its program does not lie below /app")
	case !slices.IsSorted(p.Connect) || !slices.IsSorted(p.Bind) || slices.Contains(p.Connect, 0) || slices.Contains(p.Bind, 0):
		return errors.New("its ports are out of order")
	}
	for i, g := range p.Paths {
		switch {
		case g.Access != Read && g.Access != Write:
			return fmt.Errorf("unknown access %q", g.Access)
		case !path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path || g.Path == "/" || strings.ContainsRune(g.Path, 0):
			return fmt.Errorf("the path %q is not clean", g.Path)
		case i > 0 && p.Paths[i-1].Path >= g.Path:
			return errors.New("its paths are out of order")
		}
	}
	return nil
}

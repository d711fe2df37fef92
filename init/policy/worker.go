package policy

import (
	"fmt"
	"slices"
)

// Main is the name of an app's main process among its workers.
const Main = ""

// Instance names one process of an app among all of a sandbox: the app's name,
// and for a worker "." and the worker's.
func Instance(app, worker string) string {
	if worker == Main {
		return app
	}
	return app + "." + worker
}

// Processes lists what is started of p: Main, unless workers serve every
// export, then the workers in their order.
func (p Policy) Processes() []string {
	var names []string
	if len(p.Exports) > 0 || len(p.Workers) == 0 {
		names = append(names, Main)
	}
	for _, w := range p.Workers {
		names = append(names, w.Name)
	}
	return names
}

// For returns what holds for one process of p: its rights and exports in place
// of the app's, and no workers.
func (p Policy) For(worker string) (Policy, error) {
	if !slices.Contains(p.Processes(), worker) {
		return Policy{}, fmt.Errorf("cannot narrow policy of app %q: it has no process %q", p.App, worker)
	}
	for _, w := range p.Workers {
		if w.Name == worker {
			p.Rights, p.Exports = w.Rights, w.Exports
		}
	}
	p.Workers = []Worker{}
	return p, nil
}

// Serves returns the process that serves an export.
func (p Policy) Serves(export string) (worker string, ok bool) {
	for _, w := range p.Workers {
		if slices.Contains(w.Exports, export) {
			return w.Name, true
		}
	}
	return Main, slices.Contains(p.Exports, export)
}

// AllExports returns the exports of every process, sorted.
func (p Policy) AllExports() []string {
	all := slices.Clone(p.Exports)
	for _, w := range p.Workers {
		all = append(all, w.Exports...)
	}
	slices.Sort(all)
	return all
}

// Invokes reports whether r lets its process call an export of an app.
func (r Rights) Invokes(app, export string) bool {
	for _, i := range r.Invoke {
		if i.App == app {
			return len(i.Exports) == 0 || slices.Contains(i.Exports, export)
		}
	}
	return false
}

// Beyond names the first thing that r allows and wide does not, or nothing.
func (r Rights) Beyond(wide Rights) string {
	for _, g := range r.Paths {
		if _, ok := Covers(Policy{Rights: wide}, g.Path, g.Access == Write); !ok {
			return fmt.Sprintf("%s of %s", g.Access, g.Path)
		}
	}
	for _, port := range r.Connect {
		if !slices.Contains(wide.Connect, port) {
			return fmt.Sprintf("connecting to port %d", port)
		}
	}
	for _, port := range r.Bind {
		if !slices.Contains(wide.Bind, port) {
			return fmt.Sprintf("binding port %d", port)
		}
	}
	if r.Terminal && !wide.Terminal {
		return "terminals"
	}
	for _, i := range r.Invoke {
		if len(i.Exports) == 0 && !wide.Invokes(i.App, "") {
			return "calling app " + i.App
		}
		for _, export := range i.Exports {
			if !wide.Invokes(i.App, export) {
				return "calling " + export + " of app " + i.App
			}
		}
	}
	for _, name := range r.Secrets {
		if !slices.Contains(wide.Secrets, name) {
			return "the secret " + name
		}
	}
	for _, name := range r.HostExecuted {
		if !slices.Contains(wide.HostExecuted, name) {
			return "writing " + name + ", which hosts execute"
		}
	}
	return ""
}

// classFor returns the seccomp profile that fits r.
func (r Rights) classFor() string {
	network := len(r.Connect)+len(r.Bind) > 0
	switch {
	case network && r.Terminal:
		return ClassNetworkTerminal
	case network:
		return ClassNetwork
	case r.Terminal:
		return ClassTerminal
	}
	return ClassBase
}

// WithClass returns r with the seccomp profile that its other members ask for,
// which is the only one that Check accepts.
func (r Rights) WithClass() Rights {
	r.Class = r.classFor()
	return r
}

// filled returns r with empty slices in place of nil ones: equal rights have
// equal bytes.
func (r Rights) filled() Rights {
	r.Paths, r.Connect, r.Bind = fill(r.Paths), fill(r.Connect), fill(r.Bind)
	r.Secrets, r.HostExecuted = fill(r.Secrets), fill(r.HostExecuted)
	r.Invoke = slices.Clone(fill(r.Invoke))
	for i := range r.Invoke {
		r.Invoke[i].Exports = fill(r.Invoke[i].Exports)
	}
	return r
}

func fill[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

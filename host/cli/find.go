package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/berthos/berth/host/control"
	"github.com/berthos/berth/host/machine/runtimedir"
)

// running returns the sandboxes of this user that answer, and the ids of those
// that do not.
func running(ctx context.Context) ([]control.Client, []control.Description, []string, error) {
	root, err := runtimedir.Open(runtimedir.Search{})
	if err != nil {
		return nil, nil, nil, err
	}
	return control.Find(ctx, root.Sandboxes())
}

// findApp returns the sandbox that runs an app, the newest if several do.
func findApp(ctx context.Context, w World, name, id string) (control.Client, control.App, error) {
	clients, found, silent, err := running(ctx)
	if err != nil {
		return control.Client{}, control.App{}, err
	}
	best, bestApp := -1, -1
	var names []string
	for i, d := range found {
		for j, app := range d.Apps {
			names = append(names, app.Name)
			if app.Name == name && (id == "" || d.ID == id) && (best < 0 || d.Started.After(found[best].Started)) {
				best, bestApp = i, j
			}
		}
	}
	if best < 0 && len(silent) > 0 {
		return control.Client{}, control.App{}, fail(ExitNotFound, "its berth may be stopped: fg, or kill -CONT", "cannot find app %q: sandbox %s does not answer", name, strings.Join(silent, ", "))
	}
	if best < 0 {
		return control.Client{}, control.App{}, notRunning(name, id, names)
	}
	return clients[best], found[best].Apps[bestApp], nil
}

func notRunning(name, id string, names []string) error {
	if id != "" {
		return fail(ExitNotFound, "berth dev prints the id of its sandbox", "cannot find app %q in a sandbox %q", name, id)
	}
	if len(names) == 0 {
		return fail(ExitNotFound, "start it in its folder: berth dev", "cannot find app %q: no sandbox is running", name)
	}
	slices.Sort(names)
	return fail(ExitNotFound, "running: "+strings.Join(slices.Compact(names), ", "), "cannot find app %q in any running sandbox", name)
}

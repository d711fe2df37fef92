package manifest

// NameList is a checked list of changes to the names that hosts execute, from
// the user's configuration. It is read as strictly as a manifest, by the same
// reader.
type NameList struct {
	Add, Remove []ListedName
}

// ListedName is one name, and why the user wants it so.
type ListedName struct {
	Pos
	Name, Reason string
}

const maxListed = 256

// ParseNameList reads such a list; file is its name in messages. check judges
// one name. The error is of type Errors and holds every fault.
func ParseNameList(file string, raw []byte, check func(name string, remove bool) error) (NameList, error) {
	tree, fault := readYAML(raw)
	if fault != nil {
		fault.File = file
		return NameList{}, Errors{*fault}
	}
	d := &decoder{file: file, keys: map[string]Pos{}}
	var l NameList
	read := func(into *[]ListedName, what string, remove bool) func(node) {
		return func(n node) {
			d.list(n, what, maxListed, func(_ int, n node) {
				e := d.listedName(n)
				if err := check(e.Name, remove); err != nil && e.Name != "" {
					d.fail(e.Pos, "", "%s: %v", what, err)
				}
				*into = append(*into, e)
			})
		}
	}
	d.mapping(tree, "the list",
		key{"add", read(&l.Add, "add", false)},
		key{"remove", read(&l.Remove, "remove", true)},
	)
	seen := map[string]bool{}
	for _, e := range append(append([]ListedName{}, l.Add...), l.Remove...) {
		if seen[e.Name] && e.Name != "" {
			d.fail(e.Pos, "remove one of them", "%s stands twice", quote(e.Name))
		}
		seen[e.Name] = true
	}
	if len(d.fault) > 0 {
		return NameList{}, d.fault.Sorted()
	}
	return l, nil
}

func (d *decoder) listedName(n node) ListedName {
	e := ListedName{Pos: n.pos}
	seen := d.mapping(n, "an entry of the list",
		key{"name", func(n node) { e.Name, _ = d.str(n, "name", maxScope) }},
		key{"reason", func(n node) { e.Reason, _ = d.str(n, "reason", maxText) }},
	)
	for _, name := range []string{"name", "reason"} {
		if _, there := seen[name]; !there && n.kind == kindMap {
			d.fail(n.pos, "each entry has a name and a reason", "the key %q is missing", name)
		}
	}
	return e
}

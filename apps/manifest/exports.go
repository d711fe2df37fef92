package manifest

func (d *decoder) exports(n node) []Export {
	var list []Export
	lines := map[string]int{}
	d.list(n, "exports", maxExports, func(_ int, n node) {
		e := d.export(n)
		if before, twice := lines[e.Name]; twice && e.Name != "" {
			d.fail(e.Pos, "give each export a name of its own", "the export %s stands twice, first on line %d", quote(e.Name), before)
		}
		lines[e.Name] = e.Line
		list = append(list, e)
	})
	return list
}

func (d *decoder) export(n node) Export {
	e := Export{Pos: n.pos}
	seen := d.mapping(n, "an export",
		key{"name", func(n node) {
			s, ok := d.str(n, "the name of an export", maxText)
			if ok && (len(s) > maxName || !exportName.MatchString(s)) {
				d.fail(n.pos, "a letter, then letters, digits, _ and -, at most 63", "%s is not a name of an export", quote(s))
			}
			e.Name = s
		}},
		key{"description", func(n node) { e.Description, _ = d.text(n, "the description of an export", maxDescription) }},
		key{"input", func(n node) { e.Input = d.fields(n, "input") }},
		key{"output", func(n node) { e.Output = d.fields(n, "output") }},
		key{"capabilities", func(n node) {
			e.Capabilities, e.Narrowed = d.capabilities(n, "the capabilities of an export"), true
		}},
		key{"secrets", func(n node) { e.Secrets = d.exportSecrets(n) }},
	)
	if _, there := seen["name"]; !there && n.kind == kindMap {
		d.fail(n.pos, "add name: my_function", "an export has no name")
	}
	return e
}

func (d *decoder) fields(n node, what string) []Field {
	if n.kind != kindMap {
		d.wrong(n, what, "a mapping of field names to types")
		d.fault[len(d.fault)-1].Hint = "write { path: string, size: integer }"
		return nil
	}
	if len(n.fields) > maxFields {
		d.fail(n.fields[maxFields].key.pos, "", "%s has %d fields, at most %d are read", what, len(n.fields), maxFields)
		return nil
	}
	list := make([]Field, 0, len(n.fields))
	lines := map[string]int{}
	for _, f := range n.fields {
		name, at := f.key.text, f.key.pos
		switch before, twice := lines[name]; {
		case f.key.kind == kindBoolean || f.key.kind == kindUnclear && exportName.MatchString(name):
			d.fail(at, "put the name in quotes", "the field %s of %s is not text to every YAML reader", quote(name), what)
		case f.key.kind != kindText || len(name) > maxName || !fieldName(name):
			d.fail(at, "a letter or _, then letters, digits, _ and -, at most 63", "%s is not a name of a field", quote(name))
		case twice:
			d.fail(at, "remove one of them", "the field %s of %s stands twice, first on line %d", quote(name), what, before)
		}
		lines[name] = at.Line
		list = append(list, d.field(f))
	}
	return list
}

func fieldName(s string) bool {
	return s != "" && (s[0] == '_' && len(s) > 1 && exportName.MatchString("a"+s[1:]) || exportName.MatchString(s))
}

// field reads one member: a type, or a mapping with type, description and
// optional.
func (d *decoder) field(f field) Field {
	out := Field{Pos: f.key.pos, Name: f.key.text}
	if f.value.kind != kindMap {
		out.Type = d.fieldType(f.value, out.Name)
		return out
	}
	seen := d.mapping(f.value, "a field",
		key{"type", func(n node) { out.Type = d.fieldType(n, out.Name) }},
		key{"description", func(n node) { out.Description, _ = d.text(n, "the description of a field", maxDescription) }},
		key{"optional", func(n node) { out.Optional = d.boolean(n, "optional") }},
	)
	if _, there := seen["type"]; !there {
		d.fail(f.value.pos, "add type: string", "the field %s has no type", quote(out.Name))
	}
	return out
}

func (d *decoder) fieldType(n node, name string) Type {
	s, _ := d.word(n, "the type of field "+quote(name), string(TypeString), string(TypeNumber), string(TypeInteger),
		string(TypeBoolean), string(TypeObject), string(TypeArray))
	return Type(s)
}

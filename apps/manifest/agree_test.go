package manifest

import (
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// Another reader of YAML is asked what it sees in every manifest that Parse
// accepts. Where readers differ, a person, an editor and Berth could each take
// a different policy from the same file.

func ours(n node) string {
	var parts []string
	switch n.kind {
	case kindMap:
		for _, f := range n.fields {
			parts = append(parts, ours(f.key)+": "+ours(f.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case kindList:
		for _, item := range n.items {
			parts = append(parts, ours(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case kindNull:
		return "null"
	}
	return fmt.Sprintf("%q", n.text)
}

func theirs(n *yaml.Node) string {
	var parts []string
	switch {
	case n.Kind == yaml.DocumentNode:
		return theirs(n.Content[0])
	case n.Kind == yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, theirs(n.Content[i])+": "+theirs(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, theirs(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case n.Tag == "!!null":
		return "null"
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return fmt.Sprintf("%q", strings.TrimRight(n.Value, " \n"))
	}
	return fmt.Sprintf("%q", n.Value)
}

const blocks = `name: blocks
version: 0.1.0
description: >-
  a b

  c
    d
  e
capabilities: [ 'filesystem:read:/workspace',
  filesystem:read:/tmp ]
exports:
- name: x
  description: 'it''s'
  input: {a: string, "b": {type: number}}
- {name: y}
run:
  - /app/a
  - "x\u0041y"
  - |
   two
   lines
`

// spoilt is a manifest after a few small accidents of typing.
var spoilt = rapid.Custom(func(t *rapid.T) string {
	s := rapid.SampledFrom([]string{full, blocks}).Draw(t, "manifest")
	pieces := rapid.SampledFrom([]string{":", ": ", " :", "-", "- ", ",", "[", "]", "{", "}", "#", " #", "'", "\"", "|", ">", "|-\n",
		" ", "  ", "\n", "\n\n", "0", "~", "null", "true", "\\", "%", "@", "?", "!", "&", "*", "<<", "---\n", "x: y", "{a: b}", "[a, b]", "|2\n"})
	for range rapid.IntRange(1, 3).Draw(t, "accidents") {
		lines := strings.SplitAfter(s, "\n")
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		switch rapid.IntRange(0, 4).Draw(t, "accident") {
		case 0:
			at := rapid.IntRange(0, len(s)).Draw(t, "at")
			s = s[:at] + pieces.Draw(t, "piece") + s[at:]
			continue
		case 1:
			at := rapid.IntRange(0, len(s)-1).Draw(t, "at")
			s = s[:at] + s[min(len(s), at+rapid.IntRange(1, 4).Draw(t, "length")):]
			continue
		case 2:
			lines[i] = strings.Repeat(" ", rapid.IntRange(1, 3).Draw(t, "indent")) + lines[i]
		case 3:
			lines[i] = strings.TrimPrefix(lines[i], strings.Repeat(" ", rapid.IntRange(1, 3).Draw(t, "outdent")))
		case 4:
			j := rapid.IntRange(0, len(lines)-1).Draw(t, "other")
			lines[i], lines[j] = lines[j], lines[i]
		}
		s = strings.Join(lines, "")
	}
	return s
})

func TestAnotherReaderAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, text := range append(rapid.SliceOfN(spoilt, 20, 20).Draw(t, "manifests"), full, blocks) {
			if _, err := Parse("berth.yml", []byte(text)); err != nil {
				continue
			}
			tree, fault := readYAML([]byte(text))
			if fault != nil {
				t.Fatal("read once and not twice")
			}
			var other yaml.Node
			if err := yaml.Unmarshal([]byte(text), &other); err != nil {
				continue // stricter than the specification in places
			}
			if a, b := ours(tree), theirs(&other); a != b {
				t.Fatalf("%s\nis to us\n%s\nand to another\n%s", text, a, b)
			}
		}
	})
}

package manifest

import (
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// kind is what a piece of YAML is, as every reader of YAML agrees.
type kind int

const (
	kindMap kind = iota + 1
	kindList
	kindText
	kindNumber  // plain decimal: 12, 0.5
	kindBoolean // true, false
	kindNull
	kindUnclear // plain text that some YAML readers take for something else: no, 0x1f, 1_000, 12:30, 2026-01-01
)

func (k kind) String() string {
	switch k {
	case kindMap:
		return "a mapping"
	case kindList:
		return "a list"
	case kindText:
		return "text"
	case kindNumber:
		return "a number"
	case kindBoolean:
		return "true or false"
	case kindNull:
		return "nothing"
	}
	return "a value"
}

// node is one piece of YAML.
type node struct {
	pos    Pos
	kind   kind
	text   string // of scalars
	items  []node
	fields []field
}

type field struct {
	key   node
	value node
}

// fromAST copies the library's tree. near is used where that has no position.
func fromAST(from ast.Node, near Pos) (node, *Error) {
	at := near
	if from != nil {
		if p := position(from.GetToken()); p.Line > 0 && p.Col > 0 {
			at = p
		}
	}
	switch n := from.(type) {
	case nil:
		return node{pos: at, kind: kindNull}, nil
	case *ast.MappingNode:
		return fromMap(n.Values, mapStart(n, at), n.IsFlowStyle)
	case *ast.MappingValueNode:
		return fromMap([]*ast.MappingValueNode{n}, at, n.IsFlowStyle)
	case *ast.SequenceNode:
		return fromList(n, at)
	case *ast.StringNode:
		return fromString(n, at)
	case *ast.LiteralNode:
		// YAML readers differ on white space at the end of a block.
		return node{pos: at, kind: kindText, text: strings.TrimRight(n.Value.Value, " \n")}, nil
	case *ast.NullNode:
		return node{pos: at, kind: kindNull, text: n.Token.Value}, nil
	case ast.ScalarNode:
		text := strings.TrimSpace(from.GetToken().Value)
		return node{pos: at, kind: classify(text), text: text}, nil
	}
	return node{}, &Error{Pos: at, Msg: "this kind of YAML is not part of the manifest format"}
}

func mapStart(n *ast.MappingNode, at Pos) Pos {
	if !n.IsFlowStyle && len(n.Values) > 0 && n.Values[0].Key != nil {
		if p := position(n.Values[0].Key.GetToken()); p.Line > 0 {
			return p
		}
	}
	return at
}

func fromMap(values []*ast.MappingValueNode, at Pos, flow bool) (node, *Error) {
	m := node{pos: at, kind: kindMap, fields: make([]field, 0, len(values))}
	for _, v := range values {
		key, fault := fromAST(v.Key, at)
		if fault != nil {
			return node{}, fault
		}
		value, fault := fromAST(v.Value, key.pos)
		if fault != nil {
			return node{}, fault
		}
		if below := value.pos.Line > key.pos.Line && value.pos.Col <= key.pos.Col; !flow && below && !blockList(v.Value) {
			return node{}, &Error{Pos: value.pos, Msg: "not valid YAML: the value of " + quote(key.text) + " is not indented", Hint: "indent it further than its key"}
		}
		m.fields = append(m.fields, field{key, value})
	}
	return m, nil
}

// blockList reports whether n is a list with dashes, the only value that may
// stand in its key's column.
func blockList(n ast.Node) bool {
	list, ok := n.(*ast.SequenceNode)
	return ok && !list.IsFlowStyle
}

func fromList(n *ast.SequenceNode, at Pos) (node, *Error) {
	list := node{pos: at, kind: kindList, items: make([]node, 0, len(n.Values))}
	for _, v := range n.Values {
		item, fault := fromAST(v, at)
		if fault != nil {
			return node{}, fault
		}
		list.items = append(list.items, item)
	}
	return list, nil
}

// fromString refuses plain text that goes on over several lines: it is what a
// list becomes whose second item is indented too far.
func fromString(n *ast.StringNode, at Pos) (node, *Error) {
	switch n.Token.Type {
	case token.SingleQuoteType, token.DoubleQuoteType:
		return node{pos: at, kind: kindText, text: n.Value}, nil
	}
	if strings.Contains(strings.TrimSpace(n.Token.Origin), "\n") {
		return node{}, &Error{Pos: at, Msg: "a text without quotes goes on over several lines", Hint: "look at the indentation; long text begins with > and is indented below"}
	}
	return node{pos: at, kind: classify(n.Value), text: n.Value}, nil
}

var (
	number  = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)
	unclear = regexp.MustCompile(`^(` +
		`(?i:yes|no|on|off|true|false|null)|~|` + // booleans and null of YAML 1.1
		`[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|` +
		`[-+]?0[xob][0-9a-fA-F_]+|` +
		`[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|` + // base 60
		`[-+]?(?i:\.inf)|(?i:\.nan)|` +
		`[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?` +
		`)$`)
)

// classify says what a plain scalar is. The few words on which YAML's versions
// differ are unclear: they have to be quoted.
func classify(text string) kind {
	switch {
	case text == "" || text == "null" || text == "~":
		return kindNull
	case text == "true" || text == "false":
		return kindBoolean
	case number.MatchString(text):
		return kindNumber
	case unclear.MatchString(text):
		return kindUnclear
	}
	return kindText
}

package manifest

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// checkTokens refuses what manifests do not use and bounds what the parser
// does not: it recurses for each level, and its cost is quadratic in the keys
// of a block mapping.
func checkTokens(tokens token.Tokens) *Error {
	if len(tokens) > maxTokens {
		return tooMany(position(tokens[maxTokens]))
	}
	var nesting nesting
	for i, t := range tokens {
		if name := refusedToken(t.Type); name != "" {
			return &Error{Pos: position(t), Msg: name + " are not part of the manifest format", Hint: refusedHint(t.Type)}
		}
		if fault := checkToken(tokens, i, nesting.flow > 0); fault != nil {
			return fault
		}
		switch depth, keys := nesting.add(t); {
		case depth > maxDepth:
			return &Error{Pos: position(t), Msg: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		case keys > maxKeys:
			return &Error{Pos: position(t), Msg: fmt.Sprintf("a mapping with more than %d keys", maxKeys)}
		}
	}
	return nil
}

// checkToken refuses what this library accepts and the YAML specification, or
// another reader, does not: a manifest means the same to everybody.
func checkToken(tokens token.Tokens, i int, flow bool) *Error {
	t := tokens[i]
	fault := func(msg, hint string) *Error { return &Error{Pos: position(t), Msg: msg, Hint: hint} }
	switch t.Type {
	case token.DocumentHeaderType:
		if !onlyComments(tokens[:i]) {
			return fault("a second YAML document", "one file holds one manifest")
		}
	case token.DocumentEndType:
		return fault("a document end marker (...)", "remove the line")
	case token.LiteralType, token.FoldedType:
		if !slices.Contains([]string{"|", "|-", "|+", ">", ">-", ">+"}, t.Value) {
			return fault("the block header "+quote(t.Value), "write | to keep line breaks, > to fold them")
		}
	case token.StringType:
		if flow && strings.ContainsAny(t.Value, "[]{}") {
			return fault("a bracket in a text without quotes", "put the text in quotes, or balance the brackets")
		}
		if strings.HasPrefix(t.Value, "%") {
			return fault("a text that begins with % without quotes", "put it in quotes")
		}
	case token.CollectEntryType:
		if i == 0 || opens(tokens[i-1].Type) {
			return fault("a comma with nothing before it", "remove the comma")
		}
	case token.MappingValueType:
		if i > 0 && tokens[i-1].Type == token.MappingValueType {
			return fault("a colon after a colon", "quote the text if it is meant literally")
		}
		if glued(tokens, i) {
			return fault("a colon without a space after it in { }", "write { key: value }")
		}
	}
	return nil
}

// checkComplete compares the tokens with the text they were made from: this
// lexer drops some characters in silence (a lone ! for one), and whatever it
// does not see, nobody has checked.
func checkComplete(text string, tokens token.Tokens) *Error {
	r := reader{text: text, line: 1}
	for _, t := range tokens {
		if t.Type == token.DoubleQuoteType { // its Origin lacks parts of escapes
			if !r.quoted() {
				return unread(r)
			}
			continue
		}
		for i := range len(t.Origin) {
			if c := t.Origin[i]; c != ' ' && c != '\n' {
				if at, more := r.next(); !more || at != c {
					return unread(r)
				}
			}
		}
	}
	if _, more := r.next(); more {
		return unread(r)
	}
	return nil
}

// reader gives the characters of a text other than white space.
type reader struct {
	text           string
	pos, line, col int
}

func (r *reader) next() (byte, bool) {
	for r.pos < len(r.text) {
		c := r.text[r.pos]
		r.pos++
		if c == '\n' {
			r.line, r.col = r.line+1, 0
			continue
		}
		if utf8.RuneStart(c) {
			r.col++
		}
		if c != ' ' {
			return c, true
		}
	}
	return 0, false
}

// quoted skips a text in double quotes.
func (r *reader) quoted() bool {
	c, more := r.next()
	if c != '"' {
		return false
	}
	for more {
		switch c, more = r.next(); c {
		case '\\':
			r.pos++ // the character after it, also if that is a quote or a space
		case '"':
			return true
		}
	}
	return false
}

func unread(r reader) *Error {
	return &Error{Pos: Pos{r.line, max(r.col, 1)}, Msg: "not valid YAML: something here is no part of a key, a value or a comment", Hint: "quote the text if it is meant literally"}
}

func refusedToken(t token.Type) string {
	switch t {
	case token.AnchorType:
		return "anchors (&name)"
	case token.AliasType:
		return "aliases (*name)"
	case token.MergeKeyType:
		return "merge keys (<<)"
	case token.TagType:
		return "tags (!name)"
	case token.DirectiveType:
		return "directives (%NAME)"
	case token.MappingKeyType:
		return "complex keys (?)"
	}
	return ""
}

func refusedHint(t token.Type) string {
	switch t {
	case token.AliasType:
		return `write the value out; a text that begins with * is quoted: "*"`
	case token.AnchorType, token.MergeKeyType:
		return "write the value out where it is used"
	case token.DirectiveType:
		return "remove the line"
	case token.MappingKeyType:
		return "write key: value"
	}
	return "quote the text if it is meant literally"
}

func onlyComments(tokens token.Tokens) bool {
	for _, t := range tokens {
		if t.Type != token.CommentType {
			return false
		}
	}
	return true
}

func opens(t token.Type) bool {
	return t == token.MappingStartType || t == token.SequenceStartType || t == token.CollectEntryType
}

// glued finds {a:b}, which this library reads as a key with a value and others
// as the key "a:b". After a quoted key ({"a":1}) all agree.
func glued(tokens token.Tokens, i int) bool {
	if i == 0 || i+1 >= len(tokens) {
		return false
	}
	before, colon, after := tokens[i-1], tokens[i], tokens[i+1]
	if before.Type == token.SingleQuoteType || before.Type == token.DoubleQuoteType {
		return false
	}
	switch after.Type {
	case token.CollectEntryType, token.MappingEndType, token.SequenceEndType:
		return false
	}
	return after.Position.Line == colon.Position.Line && after.Position.Column == colon.Position.Column+1
}

// nesting follows the structure of a document token by token: open brackets,
// and in block style the columns at which an entry or a key began and has not
// ended.
type nesting struct {
	flow  int
	block []level
}

type level struct{ column, keys int }

// add returns how deep t stands, and how many keys its block mapping has.
func (n *nesting) add(t *token.Token) (depth, keys int) {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		n.flow++
	case token.MappingEndType, token.SequenceEndType:
		n.flow--
	case token.CommentType:
	default:
		if n.flow == 0 && t.Position != nil {
			keys = n.addBlock(t)
		}
	}
	return n.flow + len(n.block), keys
}

func (n *nesting) addBlock(t *token.Token) (keys int) {
	column := t.Position.Column
	for len(n.block) > 0 && n.block[len(n.block)-1].column >= column {
		if last := n.block[len(n.block)-1]; last.column == column {
			keys = last.keys
		}
		n.block = n.block[:len(n.block)-1]
	}
	key := t.Next != nil && t.Next.Type == token.MappingValueType
	if key {
		keys++
	}
	if key || t.Type == token.SequenceEntryType {
		n.block = append(n.block, level{column, keys})
	}
	return keys
}

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// readYAML turns bytes into a tree of the YAML subset that manifests use: one
// document, no anchors, aliases, merge keys, tags or directives. Three checks
// come one after the other, each making the next affordable: the bytes, the
// tokens, the tree.
func readYAML(raw []byte) (n node, fault *Error) {
	if fault := checkBytes(raw); fault != nil {
		return node{}, fault
	}
	defer func() {
		// The YAML library is not ours: whatever it does with hostile input,
		// the manifest is refused and the program goes on.
		if r := recover(); r != nil {
			n, fault = node{}, &Error{Msg: "cannot be read as YAML: the YAML library failed on it", Hint: "simplify the file; every key of a manifest fits on a line or two"}
		}
	}()
	tokens := lexer.Tokenize(strings.ReplaceAll(string(raw), "\r\n", "\n"))
	if fault := checkTokens(tokens); fault != nil {
		return node{}, fault
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return node{}, syntaxFault(err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return node{}, &Error{Pos: Pos{1, 1}, Msg: "the manifest is empty", Hint: "a manifest has at least name and version"}
	}
	return fromAST(file.Docs[0].Body, Pos{1, 1})
}

// checkBytes bounds what the lexer sees: its cost is quadratic in empty lines
// at the start of a block, and each token takes hundreds of bytes.
func checkBytes(raw []byte) *Error {
	if len(raw) > MaxBytes {
		return &Error{Msg: fmt.Sprintf("the manifest has %d bytes, at most %d are read", len(raw), MaxBytes)}
	}
	if bytes.HasPrefix(raw, []byte{0xff, 0xfe}) || bytes.HasPrefix(raw, []byte{0xfe, 0xff}) {
		return &Error{Pos: Pos{1, 1}, Msg: "the manifest is UTF-16", Hint: "save it as UTF-8"}
	}
	line, blank, structure := 0, 0, 0
	for text := range bytes.Lines(raw) {
		line++
		if line > maxLines {
			return &Error{Pos: Pos{line, 1}, Msg: fmt.Sprintf("more than %d lines", maxLines)}
		}
		if blank++; len(bytes.TrimSpace(text)) > 0 {
			blank = 0
		}
		if blank > maxBlank {
			return &Error{Pos: Pos{line, 1}, Msg: fmt.Sprintf("more than %d empty lines in a row", maxBlank)}
		}
		if fault := checkLine(text, line); fault != nil {
			return fault
		}
		for _, c := range text {
			if strings.IndexByte("[]{},:&*!?-#", c) >= 0 {
				structure++
			}
		}
		if structure > 2*maxTokens {
			return tooMany(Pos{line, 1})
		}
	}
	return nil
}

func checkLine(text []byte, line int) *Error {
	if len(text) > maxLineBytes {
		return &Error{Pos: Pos{line, 1}, Msg: fmt.Sprintf("a line of %d bytes, at most %d are read", len(text), maxLineBytes), Hint: "long text can be folded: start it with > and indent the lines below"}
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	comment, col := false, 0
	for len(text) > 0 {
		col++
		r, size := utf8.DecodeRune(text)
		at := Pos{line, col}
		switch {
		case r == utf8.RuneError && size <= 1:
			return &Error{Pos: at, Msg: "invalid UTF-8", Hint: "save the file as UTF-8"}
		case r == '#':
			comment = true
		case r == '\t' && !comment:
			return &Error{Pos: at, Msg: "a tab character", Hint: "YAML is indented with spaces"}
		case r == '\r':
			return &Error{Pos: at, Msg: "a carriage return without a line feed", Hint: "save the file with Unix line endings"}
		case r == 0xfeff:
			return &Error{Pos: at, Msg: "a byte order mark", Hint: "save the file as UTF-8 without one"}
		case r != '\t' && !printable(r):
			return &Error{Pos: at, Msg: fmt.Sprintf("the character U+%04X, which does not print", r), Hint: "remove it"}
		}
		text = text[size:]
	}
	return nil
}

// printable refuses what deceives a reader or another parser: control
// characters, line separators that only some YAML readers know, the byte order
// mark, and what reorders the text around it.
func printable(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return false
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return false
	case r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, r&0xfffe == 0xfffe, r >= 0xe0000 && r <= 0xe007f:
		return false
	}
	return true
}

func tooMany(at Pos) *Error {
	return &Error{Pos: at, Msg: fmt.Sprintf("too many entries: more than %d pieces of YAML", maxTokens)}
}

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
		switch t.Type {
		case token.DocumentHeaderType:
			if i > 0 && !onlyComments(tokens[:i]) {
				return &Error{Pos: position(t), Msg: "a second YAML document", Hint: "one file holds one manifest"}
			}
		case token.DocumentEndType:
			return &Error{Pos: position(t), Msg: "a document end marker (...)", Hint: "remove the line"}
		case token.MappingValueType:
			if glued(tokens, i) {
				return &Error{Pos: position(t), Msg: "a colon without a space after it in { }", Hint: "write { key: value }"}
			}
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

func position(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{}
	}
	return Pos{t.Position.Line, t.Position.Column}
}

// syntaxFault takes message and place from the library's error; its Error
// method would print the whole file.
func syntaxFault(err error) *Error {
	var syntax interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &syntax) {
		return &Error{Msg: "not valid YAML"}
	}
	msg := syntax.GetMessage()
	if len(msg) > 200 || strings.ContainsFunc(msg, func(r rune) bool { return !printable(r) }) {
		msg = quote(msg)
	}
	return &Error{Pos: position(syntax.GetToken()), Msg: "not valid YAML: " + msg, Hint: "look at the indentation, and quote texts that contain any of : # { } [ ] , & * ! | > ' \" % @"}
}

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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
	text := strings.ReplaceAll(string(raw), "\r\n", "\n")
	tokens := lexer.Tokenize(text)
	if fault := checkTokens(tokens); fault != nil {
		return node{}, fault
	}
	if fault := checkComplete(text, tokens); fault != nil {
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

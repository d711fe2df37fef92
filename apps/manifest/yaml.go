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

package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one fault of a manifest. Msg and Hint are one line each; whatever
// the file contributed to them is quoted.
type Error struct {
	File string
	Pos
	Msg  string
	Hint string // what its author can do; may be empty
}

func (e Error) Error() string {
	var at string
	if e.File != "" {
		at = plain(e.File) + ":"
	}
	if e.Line > 0 {
		at += fmt.Sprintf("%d:%d:", e.Line, e.Col)
	}
	if at == "" {
		return e.Msg
	}
	return at + " " + e.Msg
}

// Errors is every fault that was found, in the order of the file.
type Errors []Error

// Error has one line for each fault and, if there are several, its hint below.
func (list Errors) Error() string {
	if len(list) == 1 {
		return list[0].Error()
	}
	var b strings.Builder
	for i, e := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
		if e.Hint != "" {
			b.WriteString("\n  hint: " + e.Hint)
		}
	}
	return b.String()
}

// Hint returns the hint of the only fault; several carry theirs in Error.
func (list Errors) Hint() string {
	if len(list) == 1 {
		return list[0].Hint
	}
	return ""
}

// Sorted returns list in the order of the file, cut to what a person reads.
func (list Errors) Sorted() Errors {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	if len(sorted) > maxErrors {
		last := sorted[maxErrors]
		sorted = append(sorted[:maxErrors:maxErrors], Error{File: last.File, Pos: last.Pos, Msg: fmt.Sprintf("%d more faults from here on", len(list)-maxErrors)})
	}
	return sorted
}

// quote makes any text one printable line of ASCII, so that neither control
// characters nor look-alikes deceive the reader of a message.
func quote(s string) string {
	const most = 100
	cut := ""
	if len(s) > most {
		end := most
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s, cut = s[:end], "…"
	}
	return strconv.QuoteToASCII(s) + cut
}

// plain leaves ordinary text as it is and quotes the rest.
func plain(s string) string {
	if q := strconv.Quote(s); s == "" || len(q) != len(s)+2 {
		return strconv.Quote(s)
	}
	return s
}

package manifest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Roots are the folders that a filesystem scope may name, or lie below.
func Roots() []string { return []string{"/workspace", "/context", "/tmp", "/app"} }

// checkPath accepts exactly one spelling of each folder: what the kernel is
// told is what the manifest says. A scope is a folder, never a pattern.
func checkPath(scope string) *Error {
	if fault := checkPathText(scope); fault != nil {
		return fault
	}
	if !strings.HasPrefix(scope, "/") {
		return &Error{Msg: "the path is not absolute", Hint: absolute(scope)}
	}
	clean := path.Clean(scope)
	if !slices.Contains(Roots(), root(clean)) {
		return &Error{Msg: fmt.Sprintf("no scope can name %s", quote(clean)), Hint: "a scope names " + strings.Join(Roots(), ", ") + " or a folder below one of them"}
	}
	if clean != scope {
		return &Error{Msg: "the path is not in its canonical form", Hint: "write " + quote(clean)}
	}
	if !norm.NFC.IsNormalString(scope) {
		return &Error{Msg: "the path has characters in decomposed form, which look like others", Hint: "write " + strconv.QuoteToASCII(norm.NFC.String(scope)) + " (NFC)"}
	}
	for name := range strings.SplitSeq(scope[1:], "/") {
		if len(name) > 255 {
			return &Error{Msg: "a folder's name has more than 255 bytes"}
		}
		if strings.HasPrefix(name, " ") || strings.HasSuffix(name, " ") {
			return &Error{Msg: fmt.Sprintf("the folder %s begins or ends with a space", quote(name)), Hint: "rename the folder, or name the one above it"}
		}
	}
	return nil
}

// absolute is the hint for a relative path.
func absolute(scope string) string {
	if clean := path.Clean("/" + scope); slices.Contains(Roots(), root(clean)) {
		return "write " + quote(clean)
	}
	if clean := path.Clean("/workspace/" + scope); root(clean) == "/workspace" {
		return "write " + quote(clean)
	}
	return "a scope is an absolute path below " + strings.Join(Roots(), ", ")
}

// checkPathText refuses characters that other programs give a meaning, that do
// not print, or that look like a slash.
func checkPathText(scope string) *Error {
	if scope == "" {
		return &Error{Msg: "the scope is empty"}
	}
	if len(scope) > maxScope {
		return &Error{Msg: fmt.Sprintf("the path has %d bytes, at most %d are read", len(scope), maxScope)}
	}
	if folder, star := strings.CutSuffix(scope, "/*"); star && checkPath(folder) == nil {
		return &Error{Msg: "a scope is a folder, not a pattern", Hint: fmt.Sprintf("write %q: it covers everything below it", folder)}
	}
	for i, r := range scope {
		_, size := utf8.DecodeRuneInString(scope[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return &Error{Msg: "the path is not UTF-8"}
		case strings.ContainsRune("*?[]{}", r):
			return &Error{Msg: fmt.Sprintf("%q makes the path a pattern", r), Hint: "a scope is one folder and everything below it; name it without a pattern"}
		case r == '$' || r == '%' || r == '\\' || r == '~' && i == 0:
			return &Error{Msg: fmt.Sprintf("%q is not replaced by anything in a scope", r), Hint: "write the path as it is in the sandbox, such as /workspace"}
		case strings.ContainsRune("\"'`<>|;&", r):
			return &Error{Msg: fmt.Sprintf("%q may not be part of a scope", r), Hint: "rename the folder, or name the one above it"}
		case r < 0x20 || r == 0x7f || r > 0x7e && !unicode.In(r, unicode.L, unicode.M, unicode.N):
			return &Error{Msg: fmt.Sprintf("the path contains U+%04X, which is neither a letter nor a digit", r), Hint: "rename the folder, or name the one above it"}
		}
	}
	return nil
}

// root returns the first level of a clean absolute path.
func root(clean string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(clean, "/"), "/")
	return "/" + first
}

func coversPath(wide, narrow string) bool {
	return strings.HasPrefix(narrow, wide+"/")
}

var digits = regexp.MustCompile(`^[0-9]+$`)

func checkPort(scope string) *Error {
	port, err := strconv.ParseUint(scope, 10, 16)
	switch {
	case scope == "*":
		return &Error{Msg: "a port has a number; there is no scope for all ports", Hint: "name each port on a line of its own"}
	case !digits.MatchString(scope):
		return &Error{Msg: fmt.Sprintf("%s is not a port", quote(scope)), Hint: "one decimal number from 1 to 65535, such as 443"}
	case err != nil || port == 0:
		return &Error{Msg: fmt.Sprintf("there is no port %s", quote(scope)), Hint: "ports are 1 to 65535"}
	case strconv.FormatUint(port, 10) != scope:
		return &Error{Msg: "the port is not in its canonical form", Hint: fmt.Sprintf("write \"%d\"", port)}
	}
	return nil
}

func checkStar(scope string) *Error {
	if scope != "*" {
		return &Error{Msg: "its only scope is *"}
	}
	return nil
}

func checkPeer(scope string) *Error {
	if len(scope) > maxName || !appName.MatchString(scope) {
		return &Error{Msg: fmt.Sprintf("%s is not a peer's name", quote(scope)), Hint: "both sides name each other; lower-case letters, digits and dashes"}
	}
	return nil
}

func checkInvoke(scope string) *Error {
	app, export, dot := strings.Cut(scope, ".")
	if len(app) > maxName || !appName.MatchString(app) {
		return &Error{Msg: fmt.Sprintf("%s is not an app's name", quote(app))}
	}
	if dot && (len(export) > maxName || !exportName.MatchString(export)) {
		return &Error{Msg: fmt.Sprintf("%s is not a name of an export", quote(export))}
	}
	return nil
}

func coversInvoke(wide, narrow string) bool {
	return strings.HasPrefix(narrow, wide+".")
}

var topic = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*(\.\*)?$`)

func checkTopic(scope string) *Error {
	if len(scope) > 128 || !topic.MatchString(scope) {
		return &Error{Msg: fmt.Sprintf("%s is not a topic", quote(scope)), Hint: "words of lower-case letters, digits, _ and - with dots between them; the last may be * for all below"}
	}
	return nil
}

func coversTopic(wide, narrow string) bool {
	prefix, star := strings.CutSuffix(wide, "*")
	return star && strings.HasPrefix(narrow, prefix)
}

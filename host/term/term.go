// Package term owns text that reaches a terminal: what comes from a sandbox is
// shown and steers nothing.
package term

import "strings"

// Steers names control characters, and those that change the direction or the
// lines of text.
func Steers(r rune) bool {
	return r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 ||
		r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Visible makes one line of text safe to print: control characters other than
// tab are shown, never sent.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if Steers(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Lines is Visible for text of several lines.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Visible(line)
	}
	return strings.Join(lines, "\n")
}

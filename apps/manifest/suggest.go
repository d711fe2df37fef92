package manifest

import (
	"fmt"
	"strings"
)

// nearest returns the word closest to got, or "" if none is close enough to be
// what was meant.
func nearest(got string, words []string) string {
	if len(got) > maxName {
		return ""
	}
	best, least := "", min(3, max(1, len(got)/3))+1
	for _, w := range words {
		if d := distance(got, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// oneOf is the hint for a word that is not in words.
func oneOf(got string, words []string) string {
	if near := nearest(got, words); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "one of " + strings.Join(words, ", ")
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours between two short words.
func distance(a, b string) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev2, prev, row = prev, row, prev2
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

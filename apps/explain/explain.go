// Package explain owns what is said about policies: what changes between two,
// and whether and why a process may do something. It is pure, and asks the code
// that enforces.
package explain

import (
	"fmt"
	"strconv"
)

// quote leaves ordinary text as it is and makes any other one line of ASCII.
func quote(s string) string {
	if q := strconv.QuoteToASCII(s); s == "" || len(q) != len(s)+2 {
		return q
	}
	return s
}

func count(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

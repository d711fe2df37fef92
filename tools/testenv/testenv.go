// Package testenv owns the one way in which a test may be skipped.
package testenv

import (
	"fmt"
	"os"
	"testing"
)

// Skip skips t on a machine that can not carry it and says why. In CI, where
// everything must be there, it fails instead.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("cannot run in CI, where nothing may be skipped: %s", reason)
	}
	t.Skip(reason)
}

// Skipf is Skip with a formatted reason.
func Skipf(t testing.TB, format string, args ...any) {
	t.Helper()
	Skip(t, fmt.Sprintf(format, args...))
}

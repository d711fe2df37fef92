package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Limits of the secrets of one process. Values are in bytes.
const (
	MaxSecrets     = 64
	MaxSecret      = 64 << 10
	MaxSecretBytes = 256 << 10 // all values together
)

// CheckSecrets refuses values that are not exactly those that r names, or that
// no environment can hold. Its errors have names, never values.
func (r Rights) CheckSecrets(values map[string]string) error {
	if len(r.Secrets) > MaxSecrets {
		return fmt.Errorf("it names %d secrets, at most %d can be had", len(r.Secrets), MaxSecrets)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(r.Secrets, name) {
			return fmt.Errorf("secret %q was given, which its manifest does not name", name)
		}
	}
	total := 0
	for _, name := range r.Secrets {
		value, given := values[name]
		switch {
		case !given:
			return fmt.Errorf("secret %q was not given", name)
		case len(value) > MaxSecret:
			return fmt.Errorf("secret %q has %d bytes, at most %d are accepted", name, len(value), MaxSecret)
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("secret %q has a NUL byte, which no environment variable can hold", name)
		}
		total += len(value)
	}
	if total > MaxSecretBytes {
		return fmt.Errorf("its secrets have %d bytes, at most %d are accepted", total, MaxSecretBytes)
	}
	return nil
}

// SecretsOf returns those of values that r names.
func (r Rights) SecretsOf(values map[string]string) map[string]string {
	own := map[string]string{}
	for _, name := range r.Secrets {
		if value, given := values[name]; given {
			own[name] = value
		}
	}
	return own
}

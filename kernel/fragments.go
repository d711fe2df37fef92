package kernel

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed config/*.config
var configFS embed.FS

//go:embed packages.txt
var packagesTXT string

// Arches are the architectures there are fragments for.
var Arches = []string{"x86_64", "arm64"}

// An Option is one line of a fragment: what a configuration has to hold.
type Option struct {
	// Name includes the prefix CONFIG_.
	Name string
	// Value is as Kconfig writes it: y, n, a number, or a quoted string.
	Value string
	// Fragment and Line say where it was asked for.
	Fragment string
	Line     int
}

// A Fragment is one file of config/.
type Fragment struct {
	Name    string
	Text    []byte
	Options []Option
}

// Fragments returns those of an architecture, in the order they apply. No
// option stands in two of them.
func Fragments(arch string) ([]Fragment, error) {
	if !slices.Contains(Arches, arch) {
		return nil, fmt.Errorf("cannot configure a kernel for %q: known are %s", arch, strings.Join(Arches, ", "))
	}
	var all []Fragment
	var options []Option
	for _, name := range []string{"common.config", "hardening.config", arch + ".config"} {
		text, err := configFS.ReadFile("config/" + name)
		if err != nil {
			return nil, err
		}
		opts, err := ParseFragment(name, text)
		if err != nil {
			return nil, err
		}
		all = append(all, Fragment{Name: name, Text: text, Options: opts})
		options = append(options, opts...)
	}
	return all, noDuplicates(options)
}

// Options returns the options of several fragments.
func Options(fragments []Fragment) []Option {
	var all []Option
	for _, f := range fragments {
		all = append(all, f.Options...)
	}
	return all
}

// Packages are the Debian packages a kernel build needs.
func Packages() []string { return strings.Fields(packagesTXT) }

var reOption = regexp.MustCompile(`^(CONFIG_[A-Z0-9_a-z]+)=(y|n|-?[0-9]+|0x[0-9a-f]+|"[^"\\]*")$`)

// ParseFragment reads a fragment: blank lines, comments, and NAME=VALUE. It is
// stricter than Kconfig, which takes "# CONFIG_X is not set" for a setting and
// skips what it does not understand.
func ParseFragment(name string, text []byte) ([]Option, error) {
	var opts []Option
	for i, line := range bytes.Split(text, []byte("\n")) {
		s := string(line)
		at := fmt.Sprintf("%s:%d", name, i+1)
		if strings.HasPrefix(s, "#") {
			if strings.Contains(s, "CONFIG_") {
				return nil, fmt.Errorf("%s: an option in a comment: write CONFIG_X=n, or the name without its prefix", at)
			}
			continue
		}
		if s == "" {
			continue
		}
		m := reOption.FindStringSubmatch(s)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not CONFIG_NAME=VALUE with y, n, a number or a quoted string", at, s)
		}
		opts = append(opts, Option{Name: m[1], Value: m[2], Fragment: name, Line: i + 1})
	}
	return opts, noDuplicates(opts)
}

func noDuplicates(opts []Option) error {
	seen := map[string]Option{}
	for _, o := range opts {
		if first, ok := seen[o.Name]; ok {
			return fmt.Errorf("%s:%d: %s is already set in %s:%d", o.Fragment, o.Line, o.Name, first.Fragment, first.Line)
		}
		seen[o.Name] = o
	}
	return nil
}

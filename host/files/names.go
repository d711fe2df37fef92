package files

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// names judges places below the folder: which do not exist for the guest and
// which it may not change. Places are slash-separated and relative. Names are
// compared folded, because some file systems find ".Env" as ".env".
type names struct {
	exclude  []string
	patterns [][]string // nil: nothing is read-only
	gitFile  bool       // a .git that is no directory is read-only
	aliases  bool       // files also answer to short names, so those do not exist
}

// maxExclude bounds what a caller can ask for; each costs time at every lookup.
const maxExclude = 256

// newNames reads names to exclude, and those that the guest may not change.
func newNames(exclude, hostExecuted []string) (*names, error) {
	if len(exclude) > maxExclude {
		return nil, fmt.Errorf("cannot exclude %d names: the limit is %d", len(exclude), maxExclude)
	}
	n := &names{}
	for _, p := range exclude {
		if _, err := path.Match(p, ""); err != nil || p == "" || p == "." || p == ".." || strings.ContainsAny(p, "/\x00") {
			return nil, fmt.Errorf("cannot exclude %q: want one name without slashes, or a pattern with * ? [a-z]", p)
		}
		n.exclude = append(n.exclude, fold(p))
	}
	if len(hostExecuted) > maxHostExecuted {
		return nil, fmt.Errorf("cannot protect %d names: the limit is %d", len(hostExecuted), maxHostExecuted)
	}
	for _, p := range hostExecuted {
		if err := CheckHostExecuted(p); err != nil {
			return nil, fmt.Errorf("cannot protect a name: %w", err)
		}
		if p = fold(p); p == gitFile {
			n.gitFile = true
			continue
		}
		n.patterns = append(n.patterns, strings.Split(p, "/"))
	}
	return n, nil
}

// Matcher returns a function that reports whether a list of names covers a
// place below a shared folder; dir says whether a directory is there.
func Matcher(hostExecuted []string) (func(rel string, dir bool) bool, error) {
	n, err := newNames(nil, hostExecuted)
	if err != nil {
		return nil, err
	}
	return n.protected, nil
}

// IsHostExecuted reports whether the default list covers a place below a shared
// folder, so that it is read-only for the guest unless the share allows it.
func IsHostExecuted(rel string) bool {
	n, err := newNames(nil, HostExecutedNames())
	return err == nil && n.protected(rel, false)
}

// Excluded reports whether excluded names cover a place below a shared folder.
func Excluded(exclude []string, rel string) bool {
	n, err := newNames(exclude, nil)
	return err == nil && n.hidden(rel)
}

// hidden reports whether one component of the place is excluded.
func (n *names) hidden(rel string) bool {
	if len(n.exclude) == 0 && !n.aliases {
		return false
	}
	for c := range strings.SplitSeq(fold(rel), "/") {
		if n.hiddenName(c) {
			return true
		}
	}
	return false
}

// hiddenName judges one folded component.
func (n *names) hiddenName(c string) bool {
	return n.aliases && shortName(c) ||
		slices.ContainsFunc(n.exclude, func(p string) bool { return match(p, c) })
}

// shortName recognises what such file systems generate: LONGNA~1.TXT.
func shortName(c string) bool {
	i := strings.LastIndexByte(c, '~')
	return i > 0 && i+1 < len(c) && c[i+1] >= '0' && c[i+1] <= '9' && i <= 6
}

// fold brings a name to the form in which names are compared: what differs in
// case only, or in characters that are not seen, is the same name to a file
// system that ignores case (ext4 with casefold, APFS, NTFS).
func fold(s string) string {
	ascii := true
	for i := 0; i < len(s) && ascii; i++ {
		ascii = s[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		if r == utf8.RuneError { // bytes that are no character stay themselves
			_, n := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+n])
			continue
		}
		if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			continue
		}
		if long, ok := foldedLong[r]; ok {
			b.WriteString(long)
			continue
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		b.WriteRune(unicode.ToLower(least))
	}
	return b.String()
}

// foldedLong are the characters that full case folding, which ext4 and APFS
// know, makes into several of ASCII: the config of git is also found as "conﬁg".
var foldedLong = map[rune]string{
	'ß': "ss", 'ẞ': "ss", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl", 'ﬅ': "st", 'ﬆ': "st",
}

// match compares one folded component with one folded pattern.
func match(pattern, name string) bool {
	if pattern == name {
		return true
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		return false
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// protected reports whether hosts execute what is at the place.
func (n *names) protected(rel string, dir bool) bool {
	hit, _ := n.scan(rel)
	return hit || n.gitFile && !dir && fold(path.Base(rel)) == gitFile
}

// holds reports whether something protected could lie below the place because
// of how the place itself is called.
func (n *names) holds(rel string) bool {
	_, below := n.scan(rel)
	return len(below) > 0
}

// mayMove reports whether moving from one place to another brings nothing
// below a protected name that was free to change before: whatever would be
// protected below the new place must have been protected below the old one.
func (n *names) mayMove(from, to string) bool {
	if n.gitFile && fold(path.Base(to)) == gitFile && fold(path.Base(from)) != gitFile {
		return false // it may be a file, and is not looked at: another could take its place
	}
	_, before := n.scan(from)
	_, after := n.scan(to)
	for _, s := range after {
		if !slices.Contains(before, s) {
			return false
		}
	}
	return true
}

// state is a pattern of which the first components have matched the last
// components of a place.
type state struct{ pattern, matched int }

// scan runs every pattern over the components of the place, from any depth.
// hit: one matched the place or a folder above it. below: those that have begun.
func (n *names) scan(rel string) (hit bool, below []state) {
	if rel == "" || n.patterns == nil {
		return false, nil
	}
	for c := range strings.SplitSeq(fold(rel), "/") {
		var next []state
		for i, p := range n.patterns {
			if match(p[0], c) {
				next = append(next, state{i, 1})
			}
		}
		for _, s := range below {
			next = n.step(next, s, c)
		}
		below = next
		for _, s := range below {
			hit = hit || s.matched == len(n.patterns[s.pattern])
		}
		if hit {
			return true, nil
		}
	}
	return false, below
}

// step adds the states that s becomes when component c follows.
func (n *names) step(next []state, s state, c string) []state {
	p := n.patterns[s.pattern]
	if p[s.matched] == "**" {
		next = append(next, s)
		s.matched++
	}
	if match(p[s.matched], c) {
		next = append(next, state{s.pattern, s.matched + 1})
	}
	return next
}

// join appends a name to a place.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// decoder collects every fault of one manifest.
type decoder struct {
	file  string
	keys  map[string]Pos
	fault Errors
}

func (d *decoder) fail(at Pos, hint, format string, args ...any) {
	d.fault = append(d.fault, Error{File: d.file, Pos: at, Msg: fmt.Sprintf(format, args...), Hint: hint})
}

// wrong reports that n is not what belongs there.
func (d *decoder) wrong(n node, what, want string) {
	switch n.kind {
	case kindNull:
		d.fail(n.pos, "write a value or remove the key", "%s is empty, it must be %s", what, want)
	case kindMap, kindList:
		d.fail(n.pos, "", "%s is %s, it must be %s", what, n.kind, want)
	case kindUnclear:
		d.fail(n.pos, "", "%s is %s, it must be %s", what, quote(n.text), want)
	default:
		d.fail(n.pos, "", "%s is %s (%s), it must be %s", what, n.kind, quote(n.text), want)
	}
}

// key is one member that a mapping may have.
type key struct {
	name string
	read func(node)
}

// mapping reads the members of n, and reports unknown and repeated ones. It
// returns where each known one stands.
func (d *decoder) mapping(n node, what string, keys ...key) map[string]Pos {
	if n.kind != kindMap {
		d.wrong(n, what, "a mapping")
		return nil
	}
	seen := map[string]Pos{}
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, k.name)
	}
	for _, f := range n.fields {
		name, at := f.key.text, f.key.pos
		if before, twice := seen[name]; twice {
			d.fail(at, "remove one of them", "the key %s stands twice, first on line %d", quote(name), before.Line)
			continue
		}
		known := false
		for _, k := range keys {
			if k.name == name && f.key.kind != kindMap && f.key.kind != kindList {
				known = true
				seen[name] = at
				k.read(f.value)
			}
		}
		if !known {
			seen[name] = at
			d.fail(at, oneOf(name, names), "unknown key %s in %s", quote(name), what)
		}
	}
	return seen
}

// list reads at most most items of n.
func (d *decoder) list(n node, what string, most int, read func(int, node)) {
	if n.kind != kindList {
		hint := "write each item on a line of its own, after a dash"
		if n.kind == kindNull {
			hint = "write [] for none, or remove the key"
		}
		d.wrong(n, what, "a list")
		d.fault[len(d.fault)-1].Hint = hint
		return
	}
	for i, item := range n.items {
		if i == most {
			d.fail(item.pos, "", "%s has %d items, at most %d are read", what, len(n.items), most)
			return
		}
		read(i, item)
	}
}

// str reads one line of printable text.
func (d *decoder) str(n node, what string, most int) (string, bool) {
	s, ok := d.text(n, what, most)
	if ok && strings.ContainsAny(s, "\n") {
		d.fail(n.pos, "", "%s has several lines", what)
		return "", false
	}
	return s, ok
}

// text reads printable text of any number of lines.
func (d *decoder) text(n node, what string, most int) (string, bool) {
	switch n.kind {
	case kindText:
	case kindNumber, kindBoolean, kindUnclear:
		d.fail(n.pos, "put it in quotes: "+strconv.QuoteToASCII(n.text), "%s must be text, and %s without quotes is something else to YAML", what, quote(n.text))
		return "", false
	default:
		d.wrong(n, what, "text")
		return "", false
	}
	if len(n.text) > most {
		d.fail(n.pos, "", "%s has %d bytes, at most %d are read", what, len(n.text), most)
		return "", false
	}
	for _, r := range n.text {
		if r != '\n' && (!printable(r) || r == 0xfffd) {
			d.fail(n.pos, "", "%s contains the character U+%04X, which does not print", what, r)
			return "", false
		}
	}
	return n.text, true
}

func (d *decoder) boolean(n node, what string) bool {
	if n.kind != kindBoolean {
		d.wrong(n, what, "true or false")
		d.fault[len(d.fault)-1].Hint = "write true or false, without quotes"
		return false
	}
	return n.text == "true"
}

// integer reads a plain decimal number without a fraction.
func (d *decoder) integer(n node, what string, least, most int) int {
	milli, ok := d.decimal(n, what, least*1000, most*1000)
	if ok && milli%1000 != 0 {
		d.fail(n.pos, "", "%s is %s, it must be a whole number", what, quote(n.text))
	}
	return milli / 1000
}

// decimal reads a plain decimal number and returns its thousandths. It never
// goes through floating point, so that what is written is what applies.
func (d *decoder) decimal(n node, what string, least, most int) (int, bool) {
	want := fmt.Sprintf("a number from %s to %s", milli(least), milli(most))
	if n.kind != kindNumber {
		d.wrong(n, what, want)
		d.fault[len(d.fault)-1].Hint = "write a plain decimal number, without quotes, sign, exponent or unit"
		return 0, false
	}
	whole, fraction, _ := strings.Cut(n.text, ".")
	if fraction = strings.TrimRight(fraction, "0"); len(fraction) > 3 {
		d.fail(n.pos, "", "%s is %s, at most three digits may follow the point", what, quote(n.text))
		return 0, false
	}
	thousandths, err := strconv.Atoi(whole + (fraction + "000")[:3])
	if err != nil || thousandths < least || thousandths > most {
		d.fail(n.pos, "", "%s is %s, it must be %s", what, quote(n.text), want)
		return 0, false
	}
	return thousandths, true
}

func milli(n int) string {
	s := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// word reads a text that must be one of words.
func (d *decoder) word(n node, what string, words ...string) (string, bool) {
	s, ok := d.str(n, what, maxText)
	if !ok {
		return "", false
	}
	for _, w := range words {
		if s == w {
			return s, true
		}
	}
	d.fail(n.pos, oneOf(s, words), "%s is %s, which is not one of its values", what, quote(s))
	return "", false
}

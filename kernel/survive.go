package kernel

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
)

// A Loss is an asked-for option that a finished configuration does not hold.
type Loss struct {
	Option
	// Got is the configuration's value; n when it has none.
	Got string
	// Unknown is true when the source has no such option at all: a misspelt or
	// removed name would otherwise pass as "off" for ever.
	Unknown bool
}

func (l Loss) String() string {
	where := fmt.Sprintf("%s:%d: %s", l.Fragment, l.Line, l.Name)
	if l.Unknown {
		return where + ": this kernel has no such option"
	}
	return fmt.Sprintf("%s: want %s, got %s", where, l.Value, l.Got)
}

// Losses compares what was asked for with a finished .config, on and off alike.
// Kconfig drops in silence what it does not know or whose dependencies do not
// hold. known are the names, without prefix, that the source defines.
func Losses(want []Option, dotConfig []byte, known map[string]bool) []Loss {
	got := values(dotConfig)
	var lost []Loss
	for _, o := range want {
		v, set := got[o.Name]
		if !set {
			v = "n"
		}
		switch {
		case !known[strings.TrimPrefix(o.Name, "CONFIG_")]:
			lost = append(lost, Loss{Option: o, Unknown: true})
		case v != o.Value:
			lost = append(lost, Loss{Option: o, Got: v})
		}
	}
	return lost
}

// values reads a .config. An option that is off stands there as a comment, or
// not at all.
func values(dotConfig []byte) map[string]string {
	got := map[string]string{}
	s := bufio.NewScanner(bytes.NewReader(dotConfig))
	for s.Scan() {
		name, value, ok := strings.Cut(s.Text(), "=")
		if ok && strings.HasPrefix(name, "CONFIG_") {
			got[name] = value
		}
	}
	return got
}

// Symbols adds the options that one Kconfig file defines to known.
func Symbols(kconfig []byte, known map[string]bool) {
	s := bufio.NewScanner(bytes.NewReader(kconfig))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) == 2 && (f[0] == "config" || f[0] == "menuconfig") {
			known[f[1]] = true
		}
	}
}

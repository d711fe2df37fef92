package worklayer

import (
	"bytes"
	"testing"
)

func TestRelocate(t *testing.T) {
	for in, want := range map[string]string{
		"#!/bin/sh\n":                  "#!/app/sh\n",
		"#! /usr/bin/env python3":      "#! /app/bin/env python3",
		"#!/usr/bin/perl":              "#!/app/bin/perl",
		"PATH=/usr/bin:/bin/:/usr/lib": "PATH=/app/bin:/app/:/app/lib",
		"\x00/usr/lib/x\x00":           "\x00/app/lib/x\x00",
		`"/usr/share/nodejs"`:          `"/app/share/nodejs"`,
		"$HOME/bin/x ${prefix}/bin/x":  "$HOME/bin/x ${prefix}/bin/x",
		"/opt/usr/lib ../usr/lib":      "/opt/usr/lib ../usr/lib",
		"/usr/local":                   "/app/local",
		"no path":                      "no path",
	} {
		got, err := relocate([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("relocate(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	in := []byte("/usr/x")
	if _, err := relocate(in); err != nil || !bytes.Equal(in, []byte("/usr/x")) {
		t.Errorf("the input was changed: %q, %v", in, err)
	}
}

func TestPlace(t *testing.T) {
	for in, want := range map[string]string{
		"./usr/bin/git": "bin/git", "./bin/bash": "bin/bash", "./lib/x86_64-linux-gnu/libc.so.6": "lib/x86_64-linux-gnu/libc.so.6",
		"./usr/share/doc/git/README": "", "./etc/passwd": "", "./var/lib/x": "", "./lib64/ld-linux-x86-64.so.2": "",
		"./usr/include/stdio.h": "", "./usr/../../../bin/x": "bin/x", ".": "",
	} {
		if got := place(in); got != want {
			t.Errorf("place(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, c := range []struct{ name, to, want string }{
		{"bin/npm", "../share/nodejs/npm/bin/npm-cli.js", "../share/nodejs/npm/bin/npm-cli.js"},
		{"bin/awk", "/usr/bin/mawk", "mawk"},
		{"lib/a/b", "/lib/c", "../c"},
		{"bin/awk", "/etc/alternatives/awk", ""},
		{"bin/x", "../../outside", ""},
	} {
		if got := target(c.name, c.to); got != c.want {
			t.Errorf("target(%q, %q) = %q, want %q", c.name, c.to, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	const digest = "f040097ed7ef710127396bec92882992551a99dc7d76775b53fcb0e9801b36a1"
	line := func(name, version string) string {
		return "'http://mirror.invalid/debian/pool/main/x/" + name + ".deb' " + name + "_" + version + "_amd64.deb 4736 SHA256:" + digest + "\n"
	}
	got, err := parse([]byte(line("sed", "4.9-1")+line("git", "1%3a2.39.5")+line("perl", "5")), []string{"perl"})
	if err != nil || len(got) != 2 || got[0].Name != "git" || got[0].Version != "1:2.39.5" || got[0].SHA256 != digest || got[0].pool() != "pool/main/x/git.deb" {
		t.Errorf("parse = %+v, %v", got, err)
	}
	for _, bad := range []string{"E: nothing\n", "'http://mirror.invalid/x.deb' x_1_all.deb 1 MD5Sum:00\n", "'http://mirror.invalid/x.deb' ../x_1_all.deb 1 SHA256:" + digest + "\n"} {
		if _, err := parse([]byte(bad), nil); err == nil {
			t.Errorf("parse(%q): no error", bad)
		}
	}
}

package archtest

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchitecture parses the whole module in this process: a test that shells
// out to the go command would be served stale from the test cache.
func TestArchitecture(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	fset, files, err := scan(root)
	if err != nil {
		t.Fatal(err)
	}
	faults := imports(table, files)
	faults = append(faults, guestStyle(table, files, fset)...)
	faults = append(faults, exits(files, fset)...)
	guests := guestPrograms(table, files)
	if len(guests) < 3 {
		t.Errorf("found the guest programs %v, want at least init, agent-init and one app", guests)
	}
	for name, via := range reach(files, guests) {
		if anyBelow(name, guestForbidden) {
			faults = append(faults, "guest programs link "+name+" through "+via)
		}
	}
	for _, f := range faults {
		t.Error(f)
	}
}

// src makes a file for the checks, so that each is seen to fail.
func src(t *testing.T, fset *token.FileSet, name, text string) file {
	t.Helper()
	syntax, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	f := file{name: name, dir: filepath.Dir(name), pkg: syntax.Name.Name, syntax: syntax}
	for _, s := range syntax.Imports {
		f.imports = append(f.imports, strings.Trim(s.Path.Value, `"`))
	}
	return f
}

func TestChecksCanFail(t *testing.T) {
	rules := []rule{
		{dir: "guest", guest: true, internal: []string{"format"}},
		{dir: "format", guest: true},
		{dir: "host", internal: []string{"format"}, external: []string{cobra}},
	}
	cases := []struct {
		name, text string
		faults     int
	}{
		{"guest/a.go", `package guest; import _ "fmt"`, 0},
		{"guest/a.go", `package guest; import _ "` + module + `/format"`, 0},
		{"guest/a.go", `package guest; import _ "` + module + `/host"`, 1},
		{"guest/a.go", `package guest; import _ "github.com/spf13/cobra"`, 1},
		{"guest/a.go", `package guest; import _ "C"`, 1},
		{"host/a.go", `package host; import _ "github.com/spf13/cobra"`, 0},
		{"stray/a.go", `package stray`, 1},
		{"guest/a.go", `package guest; func init() {}`, 1},
		{"guest/a.go", `package guest; var x = compute()`, 1},
		{"guest/a.go", `package guest; import "errors"; var x = errors.New("x"); var f = func() { compute() }`, 0},
		{"host/a.go", `package host; import "os"; func f() { os.Exit(1) }`, 1},
		{"host/a.go", `package main; import "os"; func f() { os.Exit(1) }`, 0},
	}
	for _, c := range cases {
		fset := token.NewFileSet()
		files := []file{src(t, fset, c.name, c.text)}
		faults := imports(rules, files)
		faults = append(faults, guestStyle(rules, files, fset)...)
		faults = append(faults, exits(files, fset)...)
		if len(faults) != c.faults {
			t.Errorf("%s %q: faults %q, want %d", c.name, c.text, faults, c.faults)
		}
	}
}

func TestReachFindsIndirectLinks(t *testing.T) {
	fset := token.NewFileSet()
	files := []file{
		src(t, fset, "guest/a.go", `package main; import _ "`+module+`/format"`),
		src(t, fset, "format/a.go", `package format; import _ "github.com/spf13/cobra"`),
	}
	if via := reach(files, []string{"guest"}); via[cobra] != "format" {
		t.Errorf("reach = %v, want cobra through format", via)
	}
}

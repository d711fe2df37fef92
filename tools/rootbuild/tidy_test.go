package rootbuild

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

func TestTidyNamesEveryCommand(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tidy.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, name)
	}
	if want := commandPackages(); !slices.Equal(named, want) {
		t.Errorf("tidy.go names\n%v\nwant\n%v", named, want)
	}
}

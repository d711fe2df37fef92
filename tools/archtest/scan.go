package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// file is one parsed Go file of the module.
type file struct {
	name    string // relative to the module root
	dir     string
	pkg     string
	test    bool
	imports []string
	syntax  *ast.File
}

// scan parses every Go file below root, build tags ignored, so that no
// configuration can hide an import.
func scan(root string) (*token.FileSet, []file, error) {
	fset := token.NewFileSet()
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); p != root && (n == "testdata" || n == "build" || n == "bin" || strings.HasPrefix(n, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parse(fset, root, p)
		if err == nil {
			files = append(files, f)
		}
		return err
	})
	return fset, files, err
}

func parse(fset *token.FileSet, root, p string) (file, error) {
	syntax, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	rel, err := filepath.Rel(root, p)
	if err != nil {
		return file{}, err
	}
	f := file{
		name: filepath.ToSlash(rel), dir: path.Dir(filepath.ToSlash(rel)),
		pkg: syntax.Name.Name, test: strings.HasSuffix(p, "_test.go"), syntax: syntax,
	}
	for _, spec := range syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, name)
	}
	return f, nil
}

// below reports whether dir is parent or lies below it.
func below(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

// ruleFor returns the longest rule that matches dir.
func ruleFor(rules []rule, dir string) (rule, bool) {
	var best rule
	found := false
	for _, r := range rules {
		if below(dir, r.dir) && (!found || len(r.dir) > len(best.dir)) {
			best, found = r, true
		}
	}
	return best, found
}

// standard reports whether an import path is in the standard library: its
// first element has no dot.
func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

func anyBelow(name string, parents []string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return below(name, p) })
}

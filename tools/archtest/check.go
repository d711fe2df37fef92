package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

const module = "github.com/berthos/berth"

// imports reports every import that the table does not allow.
func imports(rules []rule, files []file) (faults []string) {
	for _, f := range files {
		r, ok := ruleFor(rules, f.dir)
		if !ok {
			faults = append(faults, f.name+": its folder is not in the table of tools/archtest")
			continue
		}
		for _, name := range f.imports {
			if !allowed(r, f, name) {
				faults = append(faults, fmt.Sprintf("%s: %s may not import %s", f.name, r.dir, name))
			}
		}
	}
	return faults
}

func allowed(r rule, f file, name string) bool {
	if name == "C" {
		return !r.guest && below(f.dir, "tools")
	}
	if standard(name) {
		return true
	}
	if inner, ok := strings.CutPrefix(name, module+"/"); ok {
		return f.test || below(inner, r.dir) || anyBelow(inner, r.internal)
	}
	return anyBelow(name, r.external) || f.test && anyBelow(name, testExternal)
}

// reach returns every import path that the programs below dirs link through
// packages of this module.
func reach(files []file, dirs []string) map[string]string {
	byDir := map[string][]string{}
	for _, f := range files {
		if !f.test {
			byDir[f.dir] = append(byDir[f.dir], f.imports...)
		}
	}
	via := map[string]string{}
	todo := slices.Clone(dirs)
	for len(todo) > 0 {
		dir := todo[0]
		todo = todo[1:]
		for _, name := range byDir[dir] {
			if _, seen := via[name]; seen {
				continue
			}
			via[name] = dir
			if inner, ok := strings.CutPrefix(name, module+"/"); ok {
				todo = append(todo, inner)
			}
		}
	}
	return via
}

// guestPrograms returns the folders of the guest's main packages.
func guestPrograms(rules []rule, files []file) (dirs []string) {
	for _, f := range files {
		if r, ok := ruleFor(rules, f.dir); ok && r.guest && f.pkg == "main" && !slices.Contains(dirs, f.dir) {
			dirs = append(dirs, f.dir)
		}
	}
	return dirs
}

// guestStyle reports init functions and computed package variables, which run
// before main does and slow or break a busybox build.
func guestStyle(rules []rule, files []file, fset *token.FileSet) (faults []string) {
	for _, f := range files {
		r, ok := ruleFor(rules, f.dir)
		if !ok || !r.guest || f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			for _, pos := range earlyCode(decl) {
				faults = append(faults, fset.Position(pos).String()+": guest code runs before main (init function or computed package variable)")
			}
		}
	}
	return faults
}

// earlyCode returns the places of decl that execute before main: init, and
// calls in the value of a package variable other than errors.New and friends.
func earlyCode(decl ast.Decl) (places []token.Pos) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name == "init" {
			places = append(places, d.Pos())
		}
	case *ast.GenDecl:
		if d.Tok != token.VAR {
			return nil
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if _, ok := n.(*ast.FuncLit); ok {
				return false // a body runs when it is called
			}
			if c, ok := n.(*ast.CallExpr); ok && !harmless(c) {
				places = append(places, c.Pos())
			}
			return true
		})
	}
	return places
}

// harmless allows sentinel errors and conversions such as error(nil).
func harmless(c *ast.CallExpr) bool {
	switch fun := c.Fun.(type) {
	case *ast.SelectorExpr:
		return selector(fun) == "errors.New"
	case *ast.ParenExpr, *ast.ArrayType, *ast.MapType, *ast.StarExpr:
		return true
	case *ast.Ident:
		return slices.Contains([]string{"new", "make", "len", "string", "uint16", "uint32", "uint64", "int", "int64"}, fun.Name)
	}
	return false
}

func selector(s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}

// mainOnly are calls that belong to package main alone.
var mainOnly = []string{
	"os.Exit", "os.Chdir", "os.Setenv", "log.Fatal", "log.Fatalf", "log.Fatalln",
	"flag.Parse", "flag.String", "flag.Bool", "flag.Int", "flag.StringVar", "flag.BoolVar", "flag.IntVar", "flag.Duration",
}

// exits reports calls of mainOnly outside package main.
func exits(files []file, fset *token.FileSet) (faults []string) {
	for _, f := range files {
		if f.pkg == "main" || f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s, ok := c.Fun.(*ast.SelectorExpr); ok && slices.Contains(mainOnly, selector(s)) {
				faults = append(faults, fmt.Sprintf("%s: %s belongs in package main", fset.Position(c.Pos()), selector(s)))
			}
			return true
		})
	}
	return faults
}

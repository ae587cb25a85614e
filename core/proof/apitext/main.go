// Command apitext writes the exported names of packages, with their types and without
// comments and bodies, as one text file per package. So each change of the API is a
// change of a file.
//
//	go run ./core/proof/apitext DIR PACKAGE…
//
// It writes DIR/<package, with dashes for slashes>.txt for each directory PACKAGE, and
// removes the other text files from DIR.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "apitext: got no package, want a directory and packages")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "apitext:", err)
		os.Exit(1)
	}
}

func write(dir string, packages []string) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	for _, p := range packages {
		text, err := api(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		name := strings.ReplaceAll(strings.TrimPrefix(filepath.ToSlash(p), "./"), "/", "-")
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// api returns the exported declarations of the package in dir, sorted. The files for all
// systems are included.
func api(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	files, all := token.NewFileSet(), []string(nil)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		ast.FileExports(file)
		for _, d := range file.Decls {
			texts, err := declared(files, d)
			if err != nil {
				return "", err
			}
			all = append(all, texts...)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n") + "\n", nil
}

// declared returns the texts of a declaration. A group of types or variables has one text
// for each of its specifications.
func declared(files *token.FileSet, d ast.Decl) (texts []string, err error) {
	each := []any{d}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !ofExported(d.Recv.List[0].Type) {
			return nil, nil
		}
		d.Body = nil
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return nil, nil
		}
		// A group of constants stays together, because the values depend on the order.
		if d.Tok != token.CONST {
			each = nil
			for _, s := range d.Specs {
				each = append(each, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{s}})
			}
		}
	}
	for _, one := range each {
		var b bytes.Buffer
		config := printer.Config{Mode: printer.UseSpaces, Tabwidth: 1}
		if err := config.Fprint(&b, files, one); err != nil {
			return nil, err
		}
		texts = append(texts, strings.Join(slices.DeleteFunc(strings.Split(b.String(), "\n"), func(l string) bool { return strings.TrimSpace(l) == "" }), "\n"))
	}
	return texts, nil
}

func ofExported(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.StarExpr:
		return ofExported(t.X)
	case *ast.IndexExpr:
		return ofExported(t.X)
	case *ast.Ident:
		return t.IsExported()
	}
	return false
}

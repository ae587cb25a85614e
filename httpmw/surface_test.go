package httpmw_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestSameSurface checks that httpmw and stdmw export the same names, except for a list
// of names with reasons.
func TestSameSurface(t *testing.T) {
	t.Parallel()
	gin, std := exported(t, "."), exported(t, "stdmw")
	for name, why := range map[string]string{
		"Param": "it is Path in stdmw", "Check": "net/http has no list of routes",
		"Path": "it is Param in httpmw", "Error": "gin has Context.Error", "OnError": "gin has Context.Errors",
	} {
		if gin[name] == std[name] {
			t.Errorf("%s is in both, or in none: %s", name, why)
		}
		delete(gin, name)
		delete(std, name)
	}
	if len(gin) < 20 {
		t.Errorf("only %d names were found", len(gin))
	}
	for name := range gin {
		if !std[name] {
			t.Errorf("stdmw has no %s", name)
		}
	}
	for name := range std {
		if !gin[name] {
			t.Errorf("httpmw has no %s", name)
		}
	}
}

// exported returns the names that the package in dir exports, except methods.
func exported(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names[id.Name] = true
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	return names
}

package core_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// maxNames is the maximum number of names that core may export. Users must be able to
// find the names that they need.
const maxNames = 110

// TestExportedNames limits the number of exported names. Functions, types, methods,
// constants, variables, fields and methods of interfaces count. An alias counts once,
// without its fields and methods.
func TestExportedNames(t *testing.T) {
	t.Parallel()
	names := exportedNames(t, ".")
	t.Logf("core exports %d names, at most %d are allowed", len(names), maxNames)
	if len(names) > maxNames {
		t.Errorf("core exports %d names, want at most %d; what only stores or adapters need is for core/store or core/adapter:\n%s",
			len(names), maxNames, strings.Join(names, "\n"))
	}
	for _, want := range []string{"ErrBusy", "Event.Kind", "Key", "Locker", "Locker.Acquire", "ModeShared", "Observer.Observe", "Store"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not counted", want)
		}
	}
}

func exportedNames(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	add := func(of string, idents ...*ast.Ident) {
		for _, id := range idents {
			if id.IsExported() {
				names = append(names, of+id.Name)
			}
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if of := receiver(d); of == "" || ast.IsExported(of) {
					add(strings.TrimPrefix(of+".", "."), d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add("", s.Names...)
					case *ast.TypeSpec:
						add("", s.Name)
						if s.Name.IsExported() {
							for _, m := range members(s.Type) {
								add(s.Name.Name+".", m.Names...)
							}
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// receiver returns the type of the receiver of d, or "" if d is not a method.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	return of.(*ast.Ident).Name
}

func members(of ast.Expr) []*ast.Field {
	switch of := of.(type) {
	case *ast.StructType:
		return of.Fields.List
	case *ast.InterfaceType:
		return of.Methods.List
	}
	return nil
}

// TestErrorsOfBothPackages checks that core and store have the same error values.
func TestErrorsOfBothPackages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ours, theirs error }{
		{core.ErrBusy, store.ErrBusy},
		{core.ErrLost, store.ErrLost},
		{core.ErrClosed, store.ErrClosed},
		{core.ErrUnavailable, store.ErrUnavailable},
		{core.ErrUnsupported, store.ErrUnsupported},
		{core.ErrInvalid, store.ErrInvalid},
	} {
		if c.ours != c.theirs {
			t.Errorf("core has %v, and store %v", c.ours, c.theirs)
		}
	}
	err := fmt.Errorf("acquire: %w", &store.BusyError{Name: "order"})
	var busy *core.BusyError
	if !errors.As(err, &busy) || busy.Name != "order" || !errors.Is(err, core.ErrBusy) {
		t.Errorf("%v of a store is no *core.BusyError", err)
	}
}

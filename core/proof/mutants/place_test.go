package mutants_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// find returns the file that a place names, its text including earlier changes, and the
// place's start and end in the text. A place is a file, or a package and a declaration
// in the package.
func find(root, place string, changed map[string]string) (file, text string, from, to int, err error) {
	dir, name, declared := strings.Cut(place, ": ")
	if !declared {
		text, err = read(root, place, changed)
		return place, text, 0, len(text), err
	}
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return "", "", 0, 0, err
	}
	word := name[strings.LastIndexByte(name, '.')+1:]
	found := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		one := dir + "/" + filepath.Base(path)
		source, err := read(root, one, changed)
		if err != nil {
			return "", "", 0, 0, err
		}
		if !strings.Contains(source, word) {
			continue // saves the time to parse it
		}
		all, err := declarations(source)
		if err != nil {
			return "", "", 0, 0, fmt.Errorf("%s: %w", one, err)
		}
		for _, d := range all {
			if d.name == name {
				found++
				file, text, from, to = one, source, d.from, d.to
			}
		}
	}
	switch found {
	case 0:
		err = errors.New("it is not declared there")
	case 1:
	default:
		err = fmt.Errorf("it is declared there %d times", found)
	}
	return file, text, from, to, err
}

// read returns the text of a file of the module, including earlier changes.
func read(root, file string, changed map[string]string) (string, error) {
	if text, ok := changed[file]; ok {
		return text, nil
	}
	text, err := os.ReadFile(filepath.Join(root, file))
	return string(text), err
}

// declaration is a function, a constant, a variable or a type of a file, with its start
// and end in the text.
type declaration struct {
	name     string
	from, to int
}

// parsed has the declarations of the texts that declarations has parsed. Many mutants
// are in the same files.
var parsed sync.Map

func declarations(source string) ([]declaration, error) {
	if all, ok := parsed.Load(source); ok {
		return all.([]declaration), nil
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []declaration
	add := func(name string, node ast.Node) {
		all = append(all, declaration{name, set.Position(node.Pos()).Offset, set.Position(node.End()).Offset})
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(funcName(d), d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name.Name, spec)
				case *ast.ValueSpec:
					add(spec.Names[0].Name, spec)
				}
			}
		}
	}
	parsed.Store(source, all)
	return all, nil
}

// funcName returns the name of a function, or Type.method for a method.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

package core_test

import (
	"go/ast"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestErrorTexts_Sentinels checks that the text of each exported error of the kit's
// packages begins with the kit's name.
func TestErrorTexts_Sentinels(t *testing.T) {
	t.Parallel()
	seen := 0
	for path, file := range kitFiles(t) {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok || len(v.Values) != len(v.Names) {
					continue
				}
				for i, name := range v.Names {
					text, of := errorText(v.Values[i])
					if !name.IsExported() || of == "" {
						continue
					}
					if seen++; !strings.HasPrefix(text, "lockkit: ") {
						t.Errorf("%s: the text of %s is %q, want lockkit: before it", path, name, text)
					}
				}
			}
		}
	}
	if seen < 11 {
		t.Errorf("found %d exported errors, want at least 11", seen)
	}
}

// kitFiles returns the parsed files of the kit, without generated files, tests, internal
// packages, testserver, the proof and the benchmarks.
func kitFiles(t *testing.T) map[string]*ast.File {
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]*ast.File)
	for _, s := range all {
		if ofKit.MatchString(s.path) && !outsideKit.MatchString(s.path) {
			files[s.path] = s.file
		}
	}
	return files
}

var (
	ofKit      = regexp.MustCompile(`^(core|retry|httpmw|grpcmw|taskmw)/`)
	outsideKit = regexp.MustCompile(`/(internal|proof|testserver|benchmarks)/|_test\.go$`)
)

// errorText returns the constant text of a call of errors.New or fmt.Errorf, and the
// name of the function. It returns "" for another expression.
func errorText(e ast.Expr) (text, of string) {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", ""
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "New" && f.Sel.Name != "Errorf" {
		return "", ""
	}
	if p, ok := f.X.(*ast.Ident); !ok || p.Name != "errors" && p.Name != "fmt" {
		return "", ""
	}
	arg := call.Args[0]
	for sum, ok := arg.(*ast.BinaryExpr); ok; sum, ok = arg.(*ast.BinaryExpr) {
		arg = sum.X
	}
	if lit, ok := arg.(*ast.BasicLit); ok {
		text, _ = strconv.Unquote(lit.Value)
	}
	return text, f.Sel.Name
}

// TestErrorTexts_Packages checks errors that exported functions and methods make and
// return. The text of an error begins with the name of its package, or with %s or %w
// for a constant or another error. In package keys the adapters pass the name.
func TestErrorTexts_Packages(t *testing.T) {
	t.Parallel()
	seen := 0
	for path, file := range kitFiles(t) {
		name := file.Name.Name
		switch name {
		case "main", "storetest", "saving", "keys":
			continue
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !f.Name.IsExported() || !isExportedReceiver(f.Recv) {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if _, inner := n.(*ast.FuncLit); inner {
					return false
				}
				r, ok := n.(*ast.ReturnStmt)
				if !ok {
					return true
				}
				for _, result := range r.Results {
					text, of := errorText(result)
					if of == "" || text == "" {
						continue
					}
					if seen++; !strings.HasPrefix(text, name+": ") && !strings.HasPrefix(text, "%s: ") && !strings.HasPrefix(text, "%w") {
						t.Errorf("%s: %s returns an error %q, want %s: before it", path, f.Name, text, name)
					}
				}
				return true
			})
		}
	}
	if seen < 60 {
		t.Errorf("found %d errors, want at least 60", seen)
	}
}

// isExportedReceiver reports whether the receiver's type is exported, or there is no
// receiver.
func isExportedReceiver(of *ast.FieldList) bool {
	if of == nil {
		return true
	}
	typ := of.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if i, ok := typ.(*ast.IndexExpr); ok {
		typ = i.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

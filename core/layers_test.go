package core_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers has the files of the engine, from the lowest layer to the highest. A type
// belongs to the layer of the file that declares it, and so do its methods in other
// files. A declaration uses only its own layer and lower layers. A hold notifies its
// lease through the interface notices.
var layers = [][]string{
	{"alias.go", "count.go", "doc.go", "event.go", "key.go", "mutexes.go", "observer.go", "owner.go", "times.go"},
	{"storecalls.go"},
	{"cleanup.go"},
	{"hold.go", "passing.go", "watchdog.go"},
	{"turns.go", "waiters.go"},
	{"context.go", "lease.go", "release.go", "roster.go", "run.go"},
	{"attempt.go", "options.go", "watch.go"},
	{"acquire.go", "cardwriter.go", "hooks.go", "locker.go", "snapshot.go"},
}

func layerOf(file string) int {
	return slices.IndexFunc(layers, func(files []string) bool { return slices.Contains(files, file) })
}

// layerCases has declarations to add to a file, in which %d is the number of the case.
// want is the expected complaint about the declaration, without its line, or empty if
// no complaint is expected.
var layerCases = []struct{ name, file, added, want string }{
	{"file without a layer", "extra.go", "package core", "extra.go has no layer: add it to layers in core/layers_test.go"},
	{"hold uses waiters", "hold.go", "func (h *hold) end%d(ws *waiters) {}", "hold.end%d of hold.go uses waiters of waiters.go, a higher layer"},
	{"hold uses its lease", "hold.go", "func (h *hold) end%d() { _ = h.lease.(*Lease) }", "hold.end%d of hold.go uses Lease of lease.go, a higher layer"},
	{"layer of a method", "waiters.go", "func (h *hold) end%d() { _ = waiter{} }", "hold.end%d of hold.go uses waiter of waiters.go, a higher layer"},
	{"method of an interface", "watchdog.go", "var _ = interface{ of(*Lease) }(nil)", "the declaration of _ of watchdog.go uses Lease of lease.go, a higher layer"},
	{"lease uses its Locker", "run.go", "func (l *Lease) end%d(of *Locker) {}", "Lease.end%d of lease.go uses Locker of locker.go, a higher layer"},
	{"layer of a function", "storecalls.go", "func end%d() { _ = newLease }", "end%d of storecalls.go uses newLease of lease.go, a higher layer"},
	{"attempt sets its lease's field", "attempt.go", "func (a *attempt) end%d() { a.lease.state = gone }", "attempt.end%d of attempt.go sets state, a field of lease.go"},
	{"lease sets its hold's field", "lease.go", "func (l *Lease) end%d() { l.first.token++ }", "Lease.end%d of lease.go sets token, a field of hold.go"},
	{"lease sets an element of waiters", "lease.go", "func (l *Lease) end%d() { l.engine.waiters.of[l.key] = nil }", "Lease.end%d of lease.go sets of, a field of waiters.go"},
	{"acquire replaces a waiter", "acquire.go", "func (l *Locker) end%d(w *waiter) { *w = waiter{} }", "Locker.end%d of locker.go sets all of a waiter of waiters.go"},
	{"watch sets an atomic field", "watch.go", "func (w *watch) end%d(ws *waiters) { ws.wakeable.Store(true) }", "watch.end%d of watch.go sets wakeable, a field of waiters.go"},
	{"lease deletes an element of waiters", "lease.go", "func (l *Lease) end%d() { delete(l.engine.waiters.of, l.key) }", "Lease.end%d of lease.go sets of, a field of waiters.go"},
	{"hold notifies its lease", "hold.go", "func (h *hold) end%d() { h.lease.lose() }", ""},
	{"a lease sets its own fields", "run.go", "func (l *Lease) end%d() { l.state = gone }", ""},
	{"set up a type in place", "context.go", "func end%d(c *leaseContext) { c.lease = nil }", ""},
	{"set an exported field", "locker.go", "func end%d(e *Event) { e.Err = nil }", ""},
}

func TestLayers(t *testing.T) {
	t.Parallel()
	sources, err := readPackage(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	imports, err := compiled(fset)
	if err != nil {
		t.Fatal(err)
	}
	complaints, err := inspectLayers(fset, imports, sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range complaints {
		t.Error(c)
	}
	if t.Failed() {
		return // the cases expect no other complaint
	}
	var want []string
	for i, c := range layerCases {
		number := func(text string) string { return strings.ReplaceAll(text, "%d", strconv.Itoa(i)) }
		sources[c.file] += number(c.added) + "\n"
		switch {
		case c.want == "":
		case strings.HasPrefix(c.want, c.file):
			want = append(want, c.want)
		default:
			want = append(want, fmt.Sprintf("%s:%d: %s", c.file, strings.Count(sources[c.file], "\n"), number(c.want)))
		}
	}
	got, err := inspectLayers(fset, imports, sources)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// readPackage returns the sources of the package in dir, by the names of their files.
func readPackage(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	sources := make(map[string]string)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sources[filepath.Base(file)] = string(text)
	}
	return sources, nil
}

// compiled returns an importer that reads the compiled imports of this package.
func compiled(fset *token.FileSet) (types.Importer, error) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }), nil
}

// inspectLayers returns complaints about the sources of package core. It complains
// about files without a layer, about uses of higher layers, and about the writes that
// inspectWrite finds.
func inspectLayers(fset *token.FileSet, imports types.Importer, sources map[string]string) ([]string, error) {
	in := &inspection{fset: fset, home: make(map[types.Object]string), info: &types.Info{
		Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object), Types: make(map[ast.Expr]types.TypeAndValue),
	}}
	var files []*ast.File
	for name, source := range sources {
		file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if layerOf(name) < 0 {
			in.complaints = append(in.complaints, name+" has no layer: add it to layers in core/layers_test.go")
		}
		files = append(files, file)
	}
	config := types.Config{Importer: imports}
	pkg, err := config.Check("core", fset, files, in.info)
	if err != nil {
		return nil, err
	}
	in.pkg = pkg
	for id, o := range in.info.Defs {
		if v, ok := o.(*types.Var); ok && v.IsField() || o != nil && o.Parent() == pkg.Scope() {
			in.home[o] = in.fileOf(id)
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				in.home[in.info.Defs[f.Name]] = in.homeOf(f)
			}
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			in.inspect(d)
		}
	}
	slices.Sort(in.complaints)
	return in.complaints, nil
}

type inspection struct {
	fset       *token.FileSet
	info       *types.Info
	pkg        *types.Package
	home       map[types.Object]string // the file that declares each object, field and method
	complaints []string
}

func (in *inspection) fileOf(n ast.Node) string { return in.fset.Position(n.Pos()).Filename }

// homeOf returns the file to which a declaration belongs. A method belongs to the file
// of its type, and any other declaration to its own file.
func (in *inspection) homeOf(d ast.Decl) string {
	if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
		return in.home[in.pkg.Scope().Lookup(receiver(f))]
	}
	return in.fileOf(d)
}

func (in *inspection) inspect(d ast.Decl) {
	home := in.homeOf(d)
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if of, known := in.home[in.info.Uses[n]]; known && layerOf(of) > layerOf(home) {
				in.complain(n, "%s of %s uses %s of %s, a higher layer", nameOf(d), home, n.Name, of)
			}
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				in.inspectWrite(d, x)
			}
		case *ast.IncDecStmt:
			in.inspectWrite(d, n.X)
		case *ast.CallExpr:
			if x := in.writtenBy(n); x != nil {
				in.inspectWrite(d, x)
			}
		}
		return true
	})
}

// inspectWrite complains if the declaration d sets x, and x belongs to a type of
// another file. x can be an unexported field of the type, a part of such a field, or a
// whole value of the type.
func (in *inspection) inspectWrite(d ast.Decl, x ast.Expr) {
	switch x := x.(type) {
	case *ast.ParenExpr:
		in.inspectWrite(d, x.X)
	case *ast.IndexExpr:
		in.inspectWrite(d, x.X)
	case *ast.StarExpr:
		if t := in.typeOf(x); t != nil && !t.Exported() && in.foreign(d, t) {
			in.complain(x, "%s of %s sets all of a %s of %s", nameOf(d), in.homeOf(d), t.Name(), in.home[t])
		}
	case *ast.SelectorExpr:
		if t := in.typeOf(x.X); t != nil && !x.Sel.IsExported() && in.foreign(d, t) {
			in.complain(x, "%s of %s sets %s, a field of %s", nameOf(d), in.homeOf(d), x.Sel.Name, in.home[t])
		}
	}
}

// writtenBy returns the operand that a call of delete, clear or a method of an atomic
// value writes to. It returns nil for any other call.
func (in *inspection) writtenBy(call *ast.CallExpr) ast.Expr {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if f.Name == "delete" || f.Name == "clear" {
			return call.Args[0]
		}
	case *ast.SelectorExpr:
		t := in.typeOf(f.X)
		if t != nil && t.Pkg() != nil && t.Pkg().Path() == "sync/atomic" && f.Sel.Name != "Load" {
			return f.X
		}
	}
	return nil
}

// typeOf returns the name of the type of x, or of the type that x points to. It returns
// nil if that type has no name.
func (in *inspection) typeOf(x ast.Expr) *types.TypeName {
	t := in.info.Types[x].Type
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj()
	}
	return nil
}

func (in *inspection) foreign(d ast.Decl, t *types.TypeName) bool {
	home, known := in.home[t]
	return known && home != in.homeOf(d) && home != in.fileOf(d)
}

func (in *inspection) complain(at ast.Node, format string, args ...any) {
	p := in.fset.Position(at.Pos())
	in.complaints = append(in.complaints, fmt.Sprintf("%s:%d: ", p.Filename, p.Line)+fmt.Sprintf(format, args...))
}

func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if of := receiver(d); of != "" {
			return of + "." + d.Name.Name
		}
		return d.Name.Name
	case *ast.GenDecl:
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return "the declaration of " + s.Name.Name
		case *ast.ValueSpec:
			return "the declaration of " + s.Names[0].Name
		}
	}
	return "an import"
}

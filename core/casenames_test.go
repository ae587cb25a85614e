package core_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*( [A-Za-z0-9]+(-[A-Za-z0-9]+)*){1,5}$`)
	// valueName matches a version, an identifier with a capital letter, a digit, an
	// underscore or a dot, and a call.
	valueName  = regexp.MustCompile(`^([^ ]*[A-Z0-9_.][^ ]*|[A-Za-z.]+\(.*\))$`)
	formatVerb = regexp.MustCompile(`%[-+#0-9.]*[a-z]`)
)

// valueNames are the other names of one word that cases may have. Each of them is the
// value that the case tests, such as a server, a mode, a command or a client. x stands
// for a number.
var valueNames = strings.Fields(`
	memory redis zookeeper postgres mariadb sqlite mysql pgx pgstore
	usual plain redisson shared exclusive permits readers exec serializable ansi oracle dsn server
	acquire extend release watch commit show join help
	hset hgetall hdel del pexpire pttl min-replicas-to-write
	reschedule wait drop skip fail outer inner inside outside request reply committed nil null true http
	store passing once x
	python redis-py node redlock spring spring-renews shedlock shedlock-safe go redsync redislock
	franz-go kafka-go segmentio grpc-go cron gocron acme stripe github paypal`)

func fitsCase(name string) bool {
	return plainName.MatchString(name) || valueName.MatchString(name) || slices.Contains(valueNames, name)
}

// caseNames are the names of the cases in the files of one package.
type caseNames struct {
	structs map[string]*ast.StructType
	tables  map[string]*ast.CompositeLit // of package-level variables
	found   map[token.Pos]string
}

func caseNamesOf(files []*ast.File) map[token.Pos]string {
	n := &caseNames{make(map[string]*ast.StructType), make(map[string]*ast.CompositeLit), make(map[token.Pos]string)}
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if of, ok := s.Type.(*ast.StructType); ok {
							n.structs[s.Name.Name] = of
						}
					case *ast.ValueSpec:
						for i, v := range s.Values {
							if table, ok := v.(*ast.CompositeLit); ok {
								n.tables[s.Names[i].Name] = table
							}
						}
					}
				}
			}
		}
	}
	for _, f := range files {
		var stack []ast.Node
		ast.Inspect(f, func(node ast.Node) bool {
			if node == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			stack = append(stack, node)
			if call, ok := node.(*ast.CallExpr); ok {
				if name := subtest(call); name != nil {
					n.resolve(name, stack)
				}
			}
			return true
		})
	}
	return n.found
}

// subtest returns the name in t.Run(name, test), or in a call of a helper as in
// sim(t, name, func(t *testing.T) {...}).
func subtest(call *ast.CallExpr) ast.Expr {
	is := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && (id.Name == "t" || id.Name == "b") }
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" && len(call.Args) == 2 && is(s.X) {
		return call.Args[0]
	}
	if _, ok := call.Fun.(*ast.Ident); !ok || len(call.Args) < 3 || !is(call.Args[0]) {
		return nil
	}
	test, ok := call.Args[len(call.Args)-1].(*ast.FuncLit)
	if !ok || len(test.Type.Params.List) == 0 {
		return nil
	}
	if _, ok := test.Type.Params.List[0].Type.(*ast.StarExpr); !ok {
		return nil
	}
	return call.Args[1]
}

// text returns the string of e. Each part that is not a literal counts as one word.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, left := text(e.X)
		y, right := text(e.Y)
		return x + y, left || right
	case *ast.CallExpr:
		s, ok := e.Fun.(*ast.SelectorExpr)
		if !ok || len(e.Args) == 0 || s.Sel.Name != "Sprintf" && s.Sel.Name != "Sprint" {
			break
		}
		if s.Sel.Name == "Sprintf" {
			form, ok := text(e.Args[0])
			return formatVerb.ReplaceAllString(form, "x"), ok
		}
		var all strings.Builder
		for _, arg := range e.Args {
			part, _ := text(arg)
			all.WriteString(part)
		}
		return all.String(), true
	}
	return "x", false
}

// resolve finds the literals of a name. The name is a literal, or it comes from a table
// over which a loop ranges.
func (n *caseNames) resolve(name ast.Expr, stack []ast.Node) {
	if s, ok := text(name); ok {
		n.found[name.Pos()] = s
		return
	}
	field := ""
	if s, ok := name.(*ast.SelectorExpr); ok {
		name, field = s.X, s.Sel.Name
	}
	id, ok := name.(*ast.Ident)
	if !ok {
		return
	}
	is := func(e ast.Expr) bool { v, ok := e.(*ast.Ident); return ok && v.Name == id.Name }
	for _, node := range slices.Backward(stack) {
		loop, ok := node.(*ast.RangeStmt)
		if !ok || !is(loop.Key) && !is(loop.Value) {
			continue
		}
		table, ok := loop.X.(*ast.CompositeLit)
		if v, named := loop.X.(*ast.Ident); named {
			table, ok = n.tables[v.Name]
		}
		if ok {
			n.read(table, is(loop.Key), field)
		}
		return
	}
}

// read adds the keys of table, its elements, or one field of each element.
func (n *caseNames) read(table *ast.CompositeLit, keys bool, field string) {
	var of ast.Expr
	switch t := table.Type.(type) {
	case *ast.ArrayType:
		of = t.Elt
	case *ast.MapType:
		of = t.Value
	}
	form, _ := of.(*ast.StructType)
	if id, ok := of.(*ast.Ident); ok {
		form = n.structs[id.Name]
	}
	for _, e := range table.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if e = kv.Value; keys {
				e = kv.Key
			}
		}
		if element, ok := e.(*ast.CompositeLit); ok && field != "" {
			e = fieldOf(element, form, field)
		}
		if s, ok := text(e); ok {
			n.found[e.Pos()] = s
		}
	}
}

// fieldOf returns the value of a field of element, or nil.
func fieldOf(element *ast.CompositeLit, form *ast.StructType, field string) ast.Expr {
	var names []string
	if form != nil {
		for _, f := range form.Fields.List {
			for _, id := range f.Names {
				names = append(names, id.Name)
			}
		}
	}
	for i, e := range element.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == field {
				return kv.Value
			}
		} else if i < len(names) && names[i] == field {
			return e
		}
	}
	return nil
}

// TestCaseNames checks that the names of cases can be typed after -run, in all modules. A
// name is a value of one word, or has 2 to 6 words.
func TestCaseNames(t *testing.T) {
	t.Parallel()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	packages := make(map[string][]*ast.File)
	for _, s := range all {
		packages[path.Dir(s.path)] = append(packages[path.Dir(s.path)], s.file)
	}
	count := 0
	for _, files := range packages {
		for pos, name := range caseNamesOf(files) {
			if count++; !fitsCase(name) {
				t.Errorf("%s: %q is not 2 to 6 words of letters, digits and hyphens", fset.Position(pos), name)
			}
		}
	}
	t.Logf("%d names", count)
	if count < 2500 {
		t.Errorf("got %d names, want at least 2500", count)
	}
}

// TestCaseNames_Found shows that the check finds names in each form.
func TestCaseNames_Found(t *testing.T) {
	t.Parallel()
	const source = `package x

type row struct { n int; name string }

var rows = []row{{1, "two words"}, {2, "lonely"}, {n: 3, name: "with, comma"}}

func TestX(t *testing.T) {
	t.Run("panics", nil)
	t.Run("it panics", nil)
	t.Run("one two three four five six seven", nil)
	t.Run(x + ", refused", nil)
	t.Run(x + " refused", nil)
	t.Run(fmt.Sprintf("%d/%s", 1, x), nil)
	t.Run(fmt.Sprint("run ", x, ", ", y), nil)
	sim(t, "reader's", func(t *testing.T) {})
	for _, c := range rows { t.Run(c.name, nil) }
	for name := range map[string]int{"redis": 1, "GET": 2, "v1.2": 3, "time.Date(y, m)": 4, "(limit)": 5} { t.Run(name, nil) }
	for _, way := range []string{"plain", "strange"} { t.Run(way, nil) }
}`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "x.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for pos, name := range caseNamesOf([]*ast.File{f}) {
		if !fitsCase(name) {
			got = append(got, fmt.Sprint(fset.Position(pos).Line, " ", name))
		}
	}
	slices.Sort(got)
	want := []string{
		"10 one two three four five six seven", "11 x, refused", "13 x/x", "14 run x, x", "15 reader's",
		"17 (limit)", "18 strange", "5 lonely", "5 with, comma", "8 panics",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

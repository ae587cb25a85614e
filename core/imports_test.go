package core_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const modulePath = "github.com/lockkit/lockkit/"

// room is the set of packages that the files of one package may import in addition to
// the standard library. Test files may import any package.
type room struct {
	kit     []string // packages of this module
	outside []string // modules, with all their packages
	exactly []string // packages, without the packages below them
	tests   bool     // the package is only for tests, and may import "testing"
	program bool     // the package is a program, and may print
}

// rooms has the room of every package of the module. The examples have none, and may
// import any package. A new package needs a line here.
var rooms = map[string]room{
	"retry": {outside: []string{"github.com/cenkalti/backoff/v4"}},
	"core":  {kit: []string{"core/internal/clock", "core/internal/due", "core/internal/fifo", "core/internal/hooks", "core/internal/leaseid", "core/internal/order", "core/internal/outage", "core/internal/words", "core/store", "retry"}},

	"core/store": {kit: []string{"core/internal/leaseid"}},

	"core/adapter":   {kit: []string{"core", "core/internal/hooks", "core/once"}},
	"core/keys":      {kit: []string{"core"}},
	"core/once":      {kit: []string{"core", "core/internal/hooks", "core/internal/words", "core/keys", "core/store", "retry"}},
	"core/storetest": {kit: []string{"core/store", "retry"}, tests: true},

	"core/storetest/saving": {kit: []string{"core/memstore", "core/store"}, tests: true},

	"core/inspect": {kit: []string{"core", "core/adapter", "core/internal/brief", "core/internal/claims", "core/internal/inspection", "core/internal/visible", "core/store"}},

	"core/leader": {kit: []string{"core", "core/adapter", "core/internal/clock", "core/internal/keyed", "retry"}},
	"core/named":  {kit: []string{"core", "core/adapter", "core/internal/keyed"}},

	// The modules of OpenTelemetry's API are listed by name, because the names of the
	// SDK and the exporters have the same beginning.
	"core/otellock": {kit: []string{"core", "core/once"}, outside: []string{
		"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace",
	}, exactly: []string{"go.opentelemetry.io/otel"}},

	"core/internal/brief":   {},
	"core/internal/calls":   {},
	"core/internal/due":     {},
	"core/internal/hooks":   {},
	"core/internal/fresh":   {},
	"core/internal/keyed":   {},
	"core/internal/leaseid": {},
	"core/internal/order":   {},
	"core/internal/offline": {},
	"core/internal/outage":  {kit: []string{"core/internal/words"}},
	"core/internal/visible": {},
	"core/internal/words":   {},
	"core/internal/fifo":    {},
	"core/internal/clock":   {outside: []string{"golang.org/x/sys"}},

	"core/internal/claims":     {kit: []string{"core/internal/words", "core/store"}},
	"core/internal/hub":        {},
	"core/internal/inspection": {kit: []string{"core/internal/words", "core/store"}},
	"core/internal/dialect":    {kit: []string{"core/casstore", "core/store"}},
	"core/internal/table":      {kit: []string{"core/casstore", "core/internal/dialect", "core/store"}},
	"core/internal/keystate":   {kit: []string{"core/store"}},

	"core/testserver": {tests: true},
	"core/testserver/testclient": {kit: []string{"core/testserver"}, tests: true, outside: []string{
		"github.com/redis/go-redis/v9", "github.com/go-zookeeper/zk", "github.com/jackc/pgx/v5",
	}},

	"core/memstore": {kit: []string{"core/internal/claims", "core/internal/inspection", "core/internal/keystate", "core/internal/words", "core/store"}},
	"core/casstore": {kit: []string{"core/internal/brief", "core/internal/calls", "core/internal/claims", "core/internal/clock", "core/internal/inspection", "core/internal/keyed", "core/internal/keystate", "core/internal/outage", "core/store", "retry"}},
	"core/redlock":  {kit: []string{"core", "core/internal/claims", "core/internal/clock", "core/internal/fresh", "core/internal/inspection", "core/internal/outage", "core/internal/words", "core/store"}},
	"core/redisstore": {
		kit:     []string{"core/internal/brief", "core/internal/calls", "core/internal/claims", "core/internal/clock", "core/internal/fresh", "core/internal/hub", "core/internal/inspection", "core/internal/words", "core/redisstore/internal/pipeline", "core/store"},
		outside: []string{"github.com/redis/go-redis/v9"},
	},
	"core/redisstore/internal/pipeline": {kit: []string{"core/internal/calls", "core/internal/clock", "core/internal/outage", "core/internal/words"}, outside: []string{"github.com/redis/go-redis/v9"}},

	"core/zkstore":  {kit: []string{"core/internal/claims", "core/internal/clock", "core/internal/inspection", "core/internal/outage", "core/internal/words", "core/store"}, outside: []string{"github.com/go-zookeeper/zk"}},
	"core/sqlstore": {kit: []string{"core/casstore", "core/internal/dialect", "core/internal/table", "core/sqlstore/internal/rows", "core/store"}},
	"core/pgstore": {
		kit:     []string{"core/casstore", "core/internal/brief", "core/internal/calls", "core/internal/claims", "core/internal/clock", "core/internal/dialect", "core/internal/hub", "core/internal/table", "core/internal/words", "core/store"},
		outside: []string{"github.com/jackc/pgx/v5"},
	},

	"core/sqlstore/internal/rows": {kit: []string{"core/casstore", "core/internal/calls", "core/internal/dialect", "core/internal/table", "core/internal/words", "core/store"}},

	"core/cmd/lockkit": {kit: []string{"core", "core/adapter", "core/inspect", "core/internal/visible", "core/internal/words", "core/pgstore", "core/redisstore", "core/sqlstore", "core/store", "core/zkstore"}, program: true, outside: []string{
		"github.com/redis/go-redis/v9", "github.com/go-zookeeper/zk", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "modernc.org/sqlite", "golang.org/x/sys",
	}},

	"core/proof":         {kit: []string{"core/proof/tally"}, program: true, tests: true},
	"core/proof/apitext": {program: true},
	"core/proof/tally":   {tests: true},
	"core/proof/matrix":  {tests: true},
	"core/proof/models":  {tests: true},
	"core/proof/sim":     {tests: true},

	"core/proof/servers":    {kit: []string{"core/testserver"}, program: true},
	"core/proof/neighbours": {kit: []string{"core/testserver"}, tests: true},

	"httpmw":                  {kit: []string{"core", "core/once", "retry", "httpmw/internal/guard"}, outside: []string{"github.com/gin-gonic/gin"}},
	"httpmw/internal/guard":   {kit: []string{"core", "core/adapter", "core/keys", "core/once"}},
	"httpmw/stdmw":            {kit: []string{"core", "core/once", "httpmw/internal/guard"}},
	"httpmw/httpretry":        {kit: []string{"retry"}},
	"httpmw/internal/mounted": {kit: []string{"core", "core/memstore", "core/once", "httpmw/stdmw"}, tests: true},
	"grpcmw": {kit: []string{"core", "core/adapter", "core/keys", "core/once", "retry", "grpcmw/internal/bridge", "grpcmw/lockkitpb"}, outside: []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto",
	}},
	"grpcmw/internal/bridge": {outside: []string{"google.golang.org/grpc"}},
	"grpcmw/internal/answers": {kit: []string{"core", "core/memstore", "core/once", "core/store", "core/storetest/saving", "grpcmw", "grpcmw/internal/orders"}, tests: true, outside: []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto",
	}},
	"grpcmw/internal/orders": {kit: []string{"grpcmw/lockkitpb"}, tests: true, outside: []string{"google.golang.org/grpc", "google.golang.org/protobuf"}},
	"grpcmw/lockkitpb":       {outside: []string{"google.golang.org/protobuf"}},
	"taskmw":                 {kit: []string{"core", "core/adapter", "core/keys", "core/once", "retry"}, outside: []string{"github.com/hibiken/asynq"}},
}

// talk has the names that the kit must not use, by package. The kit does not print or
// log, because its user decides that by an Observer. nil means all names of the
// package.
var talk = map[string][]string{
	"log": nil,
	"fmt": {"Print", "Printf", "Println"},
	"os":  {"Stdout", "Stderr"},
	"log/slog": {
		"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext",
		"Error", "ErrorContext", "Log", "LogAttrs", "SetDefault",
	},
}

// importCases has a file for each rule. want is a part of the expected complaint, or
// empty if no complaint is expected.
var importCases = []struct{ name, file, source, want string }{
	{"package without a room", "core/extra/extra.go", `package extra`, "no room"},
	{"file beside the module file", "lockkit.go", `package lockkit`, "no room"},
	{
		"an adapter cannot import a store", "httpmw/lock.go",
		`package httpmw; import _ "github.com/lockkit/lockkit/core/memstore"`, "lockkit/core/memstore",
	},
	{
		"stdmw cannot import a framework", "httpmw/stdmw/lock.go",
		`package stdmw; import _ "github.com/gin-gonic/gin"`, "gin-gonic/gin",
	},
	{
		"client transport cannot import core", "httpmw/httpretry/call.go",
		`package httpretry; import _ "github.com/lockkit/lockkit/core"`, "lockkit/core",
	},
	{
		"a store cannot import another store", "core/redlock/store.go",
		`package redlock; import _ "github.com/lockkit/lockkit/core/redisstore"`, "lockkit/core/redisstore",
	},
	{
		"the pipeline cannot import core", "core/redisstore/internal/pipeline/call.go",
		`package pipeline; import _ "github.com/lockkit/lockkit/core"`, "lockkit/core",
	},
	{
		"the pipeline cannot import the store", "core/redisstore/internal/pipeline/call.go",
		`package pipeline; import _ "github.com/lockkit/lockkit/core/redisstore"`, "lockkit/core/redisstore",
	},
	{
		"core cannot import a client library", "core/locker.go",
		`package core; import _ "github.com/redis/go-redis/v9"`, "go-redis",
	},
	{
		// A module is not mistaken for another module whose name has the same
		// beginning.
		"module with the same beginning", "httpmw/lock.go",
		`package httpmw; import _ "github.com/gin-gonic/gin-other"`, "gin-other",
	},
	{
		"SDK of OpenTelemetry is refused", "core/otellock/telemetry.go",
		`package otellock; import _ "go.opentelemetry.io/otel/sdk/metric"`, "otel/sdk/metric",
	},
	{
		"exporter of OpenTelemetry is refused", "core/otellock/telemetry.go",
		`package otellock; import _ "go.opentelemetry.io/otel/exporters/prometheus"`, "otel/exporters/prometheus",
	},
	{
		"core cannot import OpenTelemetry", "core/locker.go",
		`package core; import _ "go.opentelemetry.io/otel"`, "opentelemetry",
	},
	{
		"file for another operating system", "core/locker_windows.go",
		`package core; import _ "github.com/redis/go-redis/v9"`, "go-redis",
	},
	{"only packages for tests import testing", "core/memstore/store.go", `package memstore; import _ "testing/synctest"`, "testing"},
	{"log is refused", "retry/do.go", `package retry; import l "log"; func f() { l.Print() }`, "log.Print"},
	{"printing is refused", "core/a.go", `package core; import "fmt"; var f = fmt.Printf`, "fmt.Printf"},
	{"print and println are refused", "core/a.go", `package core; func f() { println() }`, "println"},
	{"the default slog logger is refused", "core/a.go", `package core; import "log/slog"; func f() { slog.Info("") }`, "slog.Info"},

	{"API of OpenTelemetry is fine", "core/otellock/a.go", `package otellock; import (_ "go.opentelemetry.io/otel"; _ "go.opentelemetry.io/otel/metric/noop")`, ""},
	{"a logger parameter is fine", "core/a.go", `package core; import "log/slog"; func f(l *slog.Logger) { l.Info("") }`, ""},
	{"subpackage of a module is fine", "core/internal/clock/a.go", `package clock; import _ "golang.org/x/sys/unix"`, ""},
	{"storetest imports testing", "core/storetest/run.go", `package storetest; import _ "testing"`, ""},
	{"a test file imports anything", "core/a_test.go", `package core_test; import ("log"; _ "github.com/x/y")`, ""},
	{"an example imports and prints anything", "examples/a/main.go", `package main; import ("fmt"; _ "github.com/x/y"); func main() { fmt.Println() }`, ""},
}

func TestImports(t *testing.T) {
	t.Parallel()

	t.Run("every package", func(t *testing.T) {
		t.Parallel()
		all, err := sources()
		if err != nil {
			t.Fatal(err)
		}
		parsed := make(map[string]*ast.File)
		for _, s := range all {
			parsed[s.path] = s.file
		}
		complaints, files, err := inspectTree(os.DirFS(".."), parsed)
		if err != nil {
			t.Fatal(err)
		}
		if files == 0 {
			t.Error("no source file found: the test looks in the wrong place")
		}
		for _, c := range complaints {
			t.Error(c)
		}
	})

	for _, c := range importCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			complaints, _, err := inspectTree(fstest.MapFS{c.file: {Data: []byte(c.source)}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(complaints, "\n")
			if c.want == "" && all != "" || c.want != "" && (len(complaints) != 1 || !strings.Contains(all, c.want)) {
				t.Errorf("got %q, want %q", all, c.want)
			}
		})
	}

	// A nested module is not part of the module.
	t.Run("module inside", func(t *testing.T) {
		t.Parallel()
		complaints, files, err := inspectTree(fstest.MapFS{
			"go.mod":                  {},
			"core/benchmarks/go.mod":  {},
			"core/benchmarks/peer.go": {Data: []byte(`package benchmarks; import _ "github.com/x/y"`)},
		}, nil)
		if err != nil || files != 0 || len(complaints) != 0 {
			t.Errorf("got %q, %d files, %v; want nothing", complaints, files, err)
		}
	})
}

// inspectTree checks every source file of the module in tree, for all platforms. It
// parses the files that are not in parsed. It returns a complaint for each broken rule,
// and the number of files.
func inspectTree(tree fs.FS, parsed map[string]*ast.File) (complaints []string, files int, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && (strings.ContainsRune("._", rune(d.Name()[0])) || d.Name() == "testdata" || isModule(tree, name)) {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file := parsed[name]
		if file == nil {
			source, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			if file, err = parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution); err != nil {
				return err
			}
		}
		files++
		complaints = append(complaints, inspectFile(name, file)...)
		return nil
	})
	return complaints, files, err
}

func isModule(tree fs.FS, dir string) bool {
	_, err := fs.Stat(tree, path.Join(dir, "go.mod"))
	return err == nil
}

func inspectFile(name string, file *ast.File) []string {
	pkg := path.Dir(name)
	if strings.HasPrefix(pkg, "examples/") {
		return nil
	}
	room, known := rooms[pkg]
	if !known {
		return []string{fmt.Sprintf("%s: package %q has no room: add it to rooms in core/imports_test.go with what it may import", name, pkg)}
	}
	var complaints []string
	local := map[string]string{} // the import path of each name in this file
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if spec.Name != nil {
			local[spec.Name.Name] = imported
		} else {
			local[path.Base(imported)] = imported
		}
		if !room.allows(imported) {
			complaints = append(complaints, fmt.Sprintf("%s imports %s, but package %s may import %s", name, imported, pkg, room))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if said := talks(n, local); said != "" && !room.program {
			complaints = append(complaints, fmt.Sprintf("%s uses %s: the kit does not print or log, it notifies an Observer", name, said))
		}
		return true
	})
	return complaints
}

func (r room) allows(imported string) bool {
	under := func(dir string) bool { return imported == dir || strings.HasPrefix(imported, dir+"/") }
	if own, ok := strings.CutPrefix(imported, modulePath); ok {
		return slices.Contains(r.kit, own)
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return r.tests || !under("testing")
	}
	return slices.Contains(r.exactly, imported) || slices.ContainsFunc(r.outside, under)
}

func (r room) String() string {
	list := append([]string{"the standard library"}, slices.Concat(r.kit, r.exactly, r.outside)...)
	if !r.tests {
		list[0] += " without testing"
	}
	return strings.Join(list, ", ")
}

// talks returns the name in talk that the node n uses, or "".
func talks(n ast.Node, local map[string]string) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
			return f.Name
		}
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if !ok {
			return ""
		}
		names, found := talk[local[x.Name]]
		if found && (names == nil || slices.Contains(names, n.Sel.Name)) {
			return path.Base(local[x.Name]) + "." + n.Sel.Name
		}
	}
	return ""
}

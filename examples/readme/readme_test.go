// Package readme compiles the Go code of every README.md, except those of nested
// modules, and runs the statements and the tests that need no server outside the
// process. It also checks the form and the links of pages, the translation, and the
// versions that pages name.
package readme

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// imports are the packages that code blocks may use without importing them.
var imports = map[string]string{
	"context":    "context",
	"errors":     "errors",
	"fmt":        "fmt",
	"http":       "net/http",
	"log":        "log",
	"slog":       "log/slog",
	"sql":        "database/sql",
	"synctest":   "testing/synctest",
	"testing":    "testing",
	"time":       "time",
	"gin":        "github.com/gin-gonic/gin",
	"redis":      "github.com/redis/go-redis/v9",
	"casstore":   "github.com/lockkit/lockkit/core/casstore",
	"core":       "github.com/lockkit/lockkit/core",
	"inspect":    "github.com/lockkit/lockkit/core/inspect",
	"leader":     "github.com/lockkit/lockkit/core/leader",
	"named":      "github.com/lockkit/lockkit/core/named",
	"once":       "github.com/lockkit/lockkit/core/once",
	"otellock":   "github.com/lockkit/lockkit/core/otellock",
	"memstore":   "github.com/lockkit/lockkit/core/memstore",
	"redlock":    "github.com/lockkit/lockkit/core/redlock",
	"redisstore": "github.com/lockkit/lockkit/core/redisstore",
	"storetest":  "github.com/lockkit/lockkit/core/storetest",
	"zk":         "github.com/go-zookeeper/zk",
	"zkstore":    "github.com/lockkit/lockkit/core/zkstore",
	"pgx":        "github.com/jackc/pgx/v5",
	"pgxpool":    "github.com/jackc/pgx/v5/pgxpool",
	"pgstore":    "github.com/lockkit/lockkit/core/pgstore",
	"sqlstore":   "github.com/lockkit/lockkit/core/sqlstore",
	"httpmw":     "github.com/lockkit/lockkit/httpmw",
	"stdmw":      "github.com/lockkit/lockkit/httpmw/stdmw",
	"httpretry":  "github.com/lockkit/lockkit/httpmw/httpretry",
	"grpc":       "google.golang.org/grpc",
	"grpcmw":     "github.com/lockkit/lockkit/grpcmw",
	"chargepb":   "github.com/lockkit/lockkit/examples/grpc/chargepb",
	"asynq":      "github.com/hibiken/asynq",
	"taskmw":     "github.com/lockkit/lockkit/taskmw",
	"webhook":    "github.com/lockkit/lockkit/examples/recipes/webhook",
	"cron":       "github.com/lockkit/lockkit/examples/recipes/cron",
}

// given declares the variables that code blocks with statements may use. They are
// parameters, so a block need not use all of them.
const given = `ctx context.Context, client *redis.Client, store, a, b, c core.Store, locks *core.Locker, runs *once.Once,
	id, sku, tenant, addr string, sum []byte, r *gin.Engine, web *http.ServeMux, server *http.Server, grpcServer *grpc.Server, mux *asynq.ServeMux,
	charge func(context.Context, string) error, audit, work func(context.Context) error, provider func(context.Context, string, int) ([]byte, error),
	pay, transfer gin.HandlerFunc, charged http.HandlerFunc, book, send, write asynq.Handler,
	account func(*gin.Context) (string, error), callerOf func(context.Context) (string, error), payments chargepb.PaymentsServer, creds grpc.DialOption,
	metrics core.Observer, db *sql.DB, zkConn *zk.Conn, pool *pgxpool.Pool, queue asynq.RedisConnOpt`

// outside matches the variables of given that need a server outside this process. A
// block with such a variable is compiled, but not run.
var outside = regexp.MustCompile(`\b(db|zkConn|pool|queue)\b`)

// runner is a program that calls the block named by its argument, with a new Redis, new
// stores and new servers. If the block has tests, the program runs these.
const runner = `package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/grpc/chargepb"
)

var block = map[string]blockFunc{
%s}

var tests = map[string][]testing.InternalTest{
%s}

type silent struct{}

func (silent) Observe(context.Context, core.Event) {}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func newClient() *redis.Client {
	server := miniredis.NewMiniRedis()
	must(server.Start())
	return redis.NewClient(&redis.Options{Addr: server.Addr()})
}

func main() {
	if named := tests[os.Args[1]]; named != nil {
		os.Args = []string{os.Args[0], "-test.v"}
		testing.Main(func(string, string) (bool, error) { return true, nil }, named, nil, nil)
	}
	gin.SetMode(gin.ReleaseMode)
	store := memstore.New()
	locks, err := core.New(store)
	must(err)
	runs, err := once.New(locks)
	must(err)
	nothing := func(context.Context) error { return nil }
	answer := gin.HandlerFunc(func(c *gin.Context) { c.String(200, "done") })
	task := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	must(block[os.Args[1]](context.Background(), newClient(), store, memstore.New(), memstore.New(), memstore.New(), locks, runs,
		"42", "a-1", "acme", "127.0.0.1:1", []byte("sum"), gin.New(), http.NewServeMux(), &http.Server{}, grpc.NewServer(), asynq.NewServeMux(),
		func(context.Context, string) error { return nil }, nothing, nothing, func(context.Context, string, int) ([]byte, error) { return []byte("receipt"), nil },
		answer, answer, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("done")) }, task, task, task,
		func(*gin.Context) (string, error) { return "acme", nil }, func(context.Context) (string, error) { return "acme", nil },
		chargepb.UnimplementedPaymentsServer{}, grpc.WithTransportCredentials(insecure.NewCredentials()),
		silent{}, nil, nil, nil, nil))
}
`

type kind int

const (
	statements kind = iota
	declarations
	program
	tests
)

type block struct {
	file string // relative to root
	code string
	kind kind
	name string // name of its package
}

func TestREADME_CompilesAndRuns(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not in PATH")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	blocks := blocksOf(t, pages(t))
	if len(blocks) < 20 {
		t.Fatalf("found %d blocks of Go code", len(blocks))
	}
	// The blocks become packages of this module through an overlay, so no file is
	// written into the module.
	dir, overlay := t.TempDir(), map[string]string{}
	add := func(pkg, base, code string) {
		source := filepath.Join(dir, pkg+"_"+base)
		if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(here, pkg, base)] = source
	}
	var calls, tested strings.Builder
	var runnable []block
	packages, imported := []string{"./statements"}, []string{"statements"} // imported by the runner
	for _, b := range blocks {
		if b.kind != statements {
			packages = append(packages, "./"+b.name)
		}
		switch b.kind {
		case program:
			add(b.name, "block.go", b.code)
		case tests:
			add(b.name, "block.go", withImports(b.code))
			runnable, imported = append(runnable, b), append(imported, b.name)
			for _, m := range testFunc.FindAllStringSubmatch(b.code, -1) {
				fmt.Fprintf(&tested, "\t%q: {{Name: %[2]q, F: %[1]s.%[2]s}},\n", b.name, m[1])
			}
		case declarations:
			add(b.name, "block.go", withImports(b.code))
		case statements:
			// One package has all statements, because it compiles much sooner than many.
			add("statements", b.name+".go", withImports("func Run_"+b.name+"("+given+") error {\n{\n"+b.code+declared(t, b)+"}\nreturn nil\n}\n"))
			if !outside.MatchString(comment.ReplaceAllString(b.code, "")) {
				runnable = append(runnable, b)
				fmt.Fprintf(&calls, "\t%q: statements.Run_%s,\n", b.name, b.name)
			}
		}
	}
	main := strings.Replace(fmt.Sprintf(runner, calls.String(), tested.String()), "\n)\n", "\n"+importsOf(imported)+")\n", 1)
	parameters := strings.TrimPrefix(withImports("type blockFunc = func("+given+") error\n"), "package block\n")
	add("runner", "main.go", main)
	add("runner", "given.go", "package main\n"+parameters)
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(files, data, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return string(out)
	}
	where := func(b block) string { return strings.TrimSuffix(b.file, "/README.md") + " " + b.name }

	t.Run("every block compiles", func(t *testing.T) {
		run(t, goTool, slices.Concat([]string{"list", "-export", "-overlay", files}, raceFlags(), packages)...)
	})
	if t.Failed() {
		for _, b := range blocks {
			t.Logf("%s is of %s", b.name, b.file)
		}
		return
	}
	binary := filepath.Join(dir, "runner.exe")
	run(t, goTool, slices.Concat([]string{"build", "-overlay", files, "-o", binary}, raceFlags(), []string{"./runner"})...)
	if t.Failed() {
		return
	}
	for _, b := range runnable {
		what := "statements of "
		if b.kind == tests {
			what = "tests of "
		}
		t.Run(what+where(b), func(t *testing.T) {
			t.Parallel()
			if out := run(t, binary, b.name); b.kind == tests && !strings.Contains(out, "--- PASS") {
				t.Errorf("no test passed:\n%s", out)
			}
		})
	}
}

// raceFlags returns the flags for the race detector of this test's build. With the same
// flags, the go command compiles no package anew.
func raceFlags() (flags []string) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" || s.Key == "-gcflags" {
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return flags
}

// pages returns the paths of the repository's READMEs, relative to root.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.Name() == "README.md":
			rel, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fenced   = regexp.MustCompile("(?s)```go\n(.*?)```")
	comment  = regexp.MustCompile(`//.*`)
	function = regexp.MustCompile(`(?m)^func `)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

func blocksOf(t *testing.T, files []string) []block {
	t.Helper()
	var all []block
	for _, file := range files {
		if file != "README.md" && isFile(filepath.Join(root, filepath.Dir(file), "go.mod")) {
			continue // a nested module, which tests its own page
		}
		for _, m := range fenced.FindAllStringSubmatch(read(t, file), -1) {
			b := block{file: file, code: m[1], name: fmt.Sprintf("block%d", len(all))}
			switch {
			case strings.HasPrefix(b.code, "package "):
				b.kind = program
			case testFunc.MatchString(b.code):
				b.kind = tests
			case function.MatchString(b.code):
				b.kind = declarations
			}
			all = append(all, b)
		}
	}
	return all
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// withImports returns a file with the declarations and the imports that they need.
func withImports(body string) string {
	var b strings.Builder
	b.WriteString("package block\n")
	code := comment.ReplaceAllString(body, "")
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(code) {
			fmt.Fprintf(&b, "import %q\n", imports[name])
		}
	}
	return b.String() + body
}

func importsOf(packages []string) string {
	var b strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&b, "\t%s \"github.com/lockkit/lockkit/examples/readme/%[1]s\"\n", p)
	}
	return b.String()
}

// declared returns statements that use the variables which the block declares. A block
// in a README may leave variables unused, but the compiler refuses unused variables.
func declared(t *testing.T, b block) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "block.go", "package p\nfunc _() {\n"+b.code+"\n}", 0)
	if err != nil {
		t.Fatalf("%s: %v in\n%s", b.file, err, b.code)
	}
	var uses strings.Builder
	for _, statement := range f.Decls[0].(*ast.FuncDecl).Body.List {
		if assign, ok := statement.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, left := range assign.Lhs {
				if name := left.(*ast.Ident).Name; name != "_" {
					fmt.Fprintf(&uses, "_ = %s\n", name)
				}
			}
		}
	}
	return uses.String()
}

// Package readme compiles the code of README.md.
package readme

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// imports are the packages that README's pieces may name.
var imports = map[string]string{
	"context":    "context",
	"errors":     "errors",
	"http":       "net/http",
	"sql":        "database/sql",
	"synctest":   "testing/synctest",
	"testing":    "testing",
	"time":       "time",
	"gin":        "github.com/gin-gonic/gin",
	"redis":      "github.com/redis/go-redis/v9",
	"core":       "github.com/lockkit/lockkit/core",
	"leader":     "github.com/lockkit/lockkit/core/leader",
	"once":       "github.com/lockkit/lockkit/core/once",
	"memstore":   "github.com/lockkit/lockkit/core/memstore",
	"redlock":    "github.com/lockkit/lockkit/core/redlock",
	"redisstore": "github.com/lockkit/lockkit/core/redisstore",
	"zk":         "github.com/go-zookeeper/zk",
	"zkstore":    "github.com/lockkit/lockkit/core/zkstore",
	"pgx":        "github.com/jackc/pgx/v5",
	"pgxpool":    "github.com/jackc/pgx/v5/pgxpool",
	"pgstore":    "github.com/lockkit/lockkit/core/pgstore",
	"httpmw":     "github.com/lockkit/lockkit/httpmw",
	"stdmw":      "github.com/lockkit/lockkit/httpmw/stdmw",
	"grpc":       "google.golang.org/grpc",
	"grpcmw":     "github.com/lockkit/lockkit/grpcmw",
	"chargepb":   "github.com/lockkit/lockkit/examples/grpc/chargepb",
	"asynq":      "github.com/hibiken/asynq",
	"taskmw":     "github.com/lockkit/lockkit/taskmw",
}

// given is what the pieces may use without saying where it comes from.
const given = `ctx context.Context, a, b, c core.Store, id, sku, tenant string, sum []byte, r *gin.Engine, db *sql.DB, server *http.Server, client *redis.Client, zkConn *zk.Conn, pool *pgxpool.Pool,
	store *redisstore.Store, locks *core.Locker, mux *asynq.ServeMux, web *http.ServeMux, charged http.HandlerFunc, queue asynq.RedisConnOpt, book, send, write asynq.Handler, metrics core.Observer, pay, transfer gin.HandlerFunc,
	audit func(context.Context) error, charge func(context.Context, string) error,
	provider func(context.Context, string, int) ([]byte, error),
	callerOf func(context.Context) (string, error), payments chargepb.PaymentsServer, addr string, creds grpc.DialOption`

func TestREADME(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not in PATH")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 5 {
		t.Fatalf("found %d pieces of Go code in README.md", len(blocks))
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	// The pieces become packages of this module without being written into it.
	overlay := map[string]string{}
	args := []string{"build", "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	for i, b := range blocks {
		code := b[1]
		if !strings.HasPrefix(code, "package ") {
			code = file(t, code)
		}
		source := filepath.Join(t.TempDir(), "piece.go")
		if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(here, fmt.Sprintf("piece%d", i), "piece.go")] = source
		args = append(args, fmt.Sprintf("./piece%d", i))
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(args[2], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), goTool, args...).CombinedOutput(); err != nil {
		t.Errorf("README.md does not compile: %v\n%s", err, out)
	}

	t.Run("the quick start has at most 20 lines", func(t *testing.T) {
		lines := 0
		for line := range strings.Lines(blocks[0][1]) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		if lines > 20 {
			t.Errorf("it has %d lines that are not blank", lines)
		}
	})
}

var comment = regexp.MustCompile(`//.*`)

// file makes a compilable file of a piece: declarations as they are, statements
// in a function that has what they need.
func file(t *testing.T, code string) string {
	t.Helper()
	body := code
	if !regexp.MustCompile(`(?m)^func `).MatchString(code) {
		body = "func piece(" + given + ") error {\n" + code + declared(t, code) + "return nil\n}\n"
	}
	var b strings.Builder
	b.WriteString("package piece\n")
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(comment.ReplaceAllString(body, "")) {
			fmt.Fprintf(&b, "import %q\n", imports[name])
		}
	}
	return b.String() + body
}

// declared uses the variables that statements declare: a piece may leave that
// to its reader, the compiler does not.
func declared(t *testing.T, code string) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "piece.go", "package p\nfunc _() {\n"+code+"\n}", 0)
	if err != nil {
		t.Fatalf("README.md: %v in\n%s", err, code)
	}
	var b strings.Builder
	for _, statement := range f.Decls[0].(*ast.FuncDecl).Body.List {
		if assign, ok := statement.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, left := range assign.Lhs {
				if name := left.(*ast.Ident).Name; name != "_" {
					fmt.Fprintf(&b, "_ = %s\n", name)
				}
			}
		}
	}
	return b.String()
}

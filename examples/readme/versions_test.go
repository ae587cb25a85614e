package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVersions_OneForEachDependency finds the oldest supported versions of Go, Redis or
// Valkey, PostgreSQL and ZooKeeper in go.mod, pages and sources. It fails if two places
// name different versions.
func TestVersions_OneForEachDependency(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?m)^(go) ([0-9.]+?)(?:\.0)?$` +
		`|\b(Go|Redis or Valkey|PostgreSQL|ZooKeeper) ([0-9][0-9.]*)(?:, [^.,]*,)?(?:\s|//)+or(?:\s|//)+later` +
		`|\bolder than (PostgreSQL) ([0-9]+)|\bconst (oldest) = ([0-9]+)`)
	dependency := map[string]string{"go": "Go", "oldest": "PostgreSQL"}
	places := map[string]map[string][]string{} // by dependency and version
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path == ".git" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || path == "CHANGELOG.md" || !slices.Contains([]string{".go", ".md", ".mod"}, filepath.Ext(path)) {
			return err
		}
		// A nested module may need a later version.
		if filepath.Ext(path) == ".mod" && path != "go.mod" {
			return nil
		}
		text, err := fs.ReadFile(os.DirFS(root), path)
		if err != nil || !mayNameVersion(string(text)) {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			name, version := m[1]+m[3]+m[5]+m[7], strings.TrimRight(m[2]+m[4]+m[6]+m[8], ".")
			if full := dependency[name]; full != "" {
				name = full
			}
			if places[name] == nil {
				places[name] = map[string][]string{}
			}
			places[name][version] = append(places[name][version], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Go", "Redis or Valkey", "PostgreSQL", "ZooKeeper"} {
		t.Logf("%s: %v", name, places[name])
		if len(places[name]) != 1 {
			t.Errorf("%s: got %d versions, want 1", name, len(places[name]))
		}
	}
}

// mayNameVersion reports whether text has the words of the expression in
// TestVersions_OneForEachDependency. It takes much less time than the expression.
func mayNameVersion(text string) bool {
	if strings.Contains("\n"+text, "\ngo ") || strings.Contains(text, "older than PostgreSQL") || strings.Contains(text, "const oldest") {
		return true
	}
	for _, name := range []string{"Go", "Redis or Valkey", "PostgreSQL", "ZooKeeper"} {
		for digit := '0'; digit <= '9'; digit++ {
			if strings.Contains(text, name+" "+string(digit)) && strings.Contains(text, "later") {
				return true
			}
		}
	}
	return false
}

// TestVersions_FrontPages checks that both front pages name the versions of go.mod.
func TestVersions_FrontPages(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"go-redis": "github.com/redis/go-redis/v9", "gin": "github.com/gin-gonic/gin", "asynq": "github.com/hibiken/asynq",
		"pgx": "github.com/jackc/pgx/v5", "grpc": "google.golang.org/grpc", "protobuf": "google.golang.org/protobuf",
	} {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(path) + ` v(\S+)`).FindSubmatch(module)
		if m == nil {
			t.Fatalf("go.mod does not require %s", path)
		}
		for _, page := range []string{"README.md", "README.zh-CN.md"} {
			text, err := os.ReadFile(filepath.Join(root, page))
			if err != nil {
				t.Fatal(err)
			}
			if want := name + " " + string(m[1]); !strings.Contains(string(text), want) {
				t.Errorf("%s does not contain %q", page, want)
			}
		}
	}
}

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

// TestVersions_OneForEachDependency finds the oldest supported version of Go and of each
// server in go.mod, pages and sources. It fails if two places name different versions.
func TestVersions_OneForEachDependency(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?m)^(go) ([0-9.]+?)(?:\.0)?$` +
		`|\b(Go|Redis or Valkey|PostgreSQL|ZooKeeper) ([0-9][0-9.]*)(?:, [^.,]*,)?(?:\s|//)+or(?:\s|//)+later` +
		`|\bolder than (PostgreSQL) ([0-9]+)|\bconst (oldest) = ([0-9]+)`)
	dependency := map[string]string{"go": "Go", "oldest": "PostgreSQL"}
	places := map[string]map[string][]string{} // by dependency and version
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == "CHANGELOG.md" || !slices.Contains([]string{".go", ".md", ".mod"}, filepath.Ext(path)) {
			return err
		}
		if filepath.Ext(path) == ".mod" && path != "go.mod" { // a nested module may need a later version
			return nil
		}
		text, err := fs.ReadFile(os.DirFS(root), path)
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
		return err
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

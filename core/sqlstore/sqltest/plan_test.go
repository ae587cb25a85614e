package sqltest

import (
	"database/sql"
	"fmt"
	"regexp"
	"testing"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// statementSettings matches MariaDB's SET STATEMENT, which EXPLAIN does not accept.
var statementSettings = regexp.MustCompile(`^/\*M.*?\*/ `)

// TestMariaDB_RowsByName checks that a statement about many rows of a small table finds
// each row by its name. Otherwise the statement would also lock the rows of all other
// keys.
func TestMariaDB_RowsByName(t *testing.T) {
	t.Parallel()
	p, db := onMariaDB(t).place(t)
	var claims []store.Claim
	for i := range 30 {
		c := claim(fmt.Sprint("row ", i), long)
		take(t, p, c)
		claims = append(claims, c)
	}
	if _, err := db.ExecContext(t.Context(), "ANALYZE TABLE lockkit_locks"); err != nil {
		t.Fatal(err)
	}
	items, err := p.List(t.Context(), "", len(claims))
	if err != nil {
		t.Fatal(err)
	}
	for name, st := range map[string]dialect.Statement{
		"extend": p.Dialect.Extend(claims, long, version()),
		"delete": p.Dialect.Delete(items),
	} {
		explained, err := db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statementSettings.ReplaceAllString(st.Text, ""), st.Args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for table, key := range keysOf(t, explained) {
			if (table == "lockkit_locks" || table == "k") && key != "PRIMARY" {
				t.Errorf("%s: %s is read by the key %q, want PRIMARY", name, table, key)
			}
		}
	}
}

// keysOf returns for each table the index by which it is read.
func keysOf(t *testing.T, explained *sql.Rows) map[string]string {
	t.Helper()
	defer explained.Close()
	columns, err := explained.Columns()
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]string)
	for explained.Next() {
		cells, into := make(map[string]*sql.NullString), []any{}
		for _, name := range columns {
			cells[name] = new(sql.NullString)
			into = append(into, cells[name])
		}
		if err := explained.Scan(into...); err != nil {
			t.Fatal(err)
		}
		keys[cells["table"].String] = cells["key"].String
	}
	if err := explained.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

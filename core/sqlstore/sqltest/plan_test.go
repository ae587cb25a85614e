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
// each row by its name. A statement that reads all rows would also lock the rows of all
// other keys.
func TestMariaDB_RowsByName(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{3, 30} {
		t.Run(fmt.Sprint(rows, " rows"), func(t *testing.T) {
			t.Parallel()
			p, db := onMariaDB(t).place(t)
			var claims []store.Claim
			for i := range rows {
				c := claim(fmt.Sprint("row ", i), long)
				take(t, p, c)
				claims = append(claims, c)
			}
			items, err := p.List(t.Context(), "", len(claims))
			if err != nil {
				t.Fatal(err)
			}
			for _, analyzed := range []bool{false, true} {
				if analyzed {
					if _, err := db.ExecContext(t.Context(), "ANALYZE TABLE lockkit_locks"); err != nil {
						t.Fatal(err)
					}
				}
				for name, st := range map[string]dialect.Statement{
					"extend all": p.Dialect.Extend(claims, long, version()), "extend some": p.Dialect.Extend(claims[:2], long, version()),
					"delete all": p.Dialect.Delete(items), "delete some": p.Dialect.Delete(items[:2]),
				} {
					explained, err := db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statementSettings.ReplaceAllString(st.Text, ""), st.Args...)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					for table, by := range accessesOf(t, explained) {
						// The types index and ALL read every row.
						if (table == "lockkit_locks" || table == "k") && (by.key != "PRIMARY" || by.kind == "index" || by.kind == "ALL") {
							t.Errorf("%s, analyzed %v: %s is read by the key %q as %q, want some rows of PRIMARY", name, analyzed, table, by.key, by.kind)
						}
					}
				}
			}
		})
	}
}

// access is the index by which a table is read, and the type of the read.
type access struct{ key, kind string }

func accessesOf(t *testing.T, explained *sql.Rows) map[string]access {
	t.Helper()
	defer explained.Close()
	columns, err := explained.Columns()
	if err != nil {
		t.Fatal(err)
	}
	accesses := make(map[string]access)
	for explained.Next() {
		cells, into := make(map[string]*sql.NullString), []any{}
		for _, name := range columns {
			cells[name] = new(sql.NullString)
			into = append(into, cells[name])
		}
		if err := explained.Scan(into...); err != nil {
			t.Fatal(err)
		}
		accesses[cells["table"].String] = access{cells["key"].String, cells["type"].String}
	}
	if err := explained.Err(); err != nil {
		t.Fatal(err)
	}
	return accesses
}
